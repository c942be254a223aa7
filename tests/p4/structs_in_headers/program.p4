// Structs inside headers: fields, whole structs, comparison, lookahead, stacks and hashes.
struct inner_t { bit<4> a; bit<4> b; }
struct outer_t { inner_t one; bit<8> c; inner_t two; }
header h_t { bit<8> op; outer_t s; }
struct headers_t { h_t h; h_t[2] more; }
struct metadata_t { outer_t kept; bit<32> seen; }

#include "../../softswitch/features/include/blocks.p4"

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        meta.kept = packet.lookahead<h_t>().s;
        packet.extract(hdr.h);
        transition select(hdr.h.s.one.a) { 15: more; default: accept; }
    }
    state more { packet.extract(hdr.more.next); transition accept; }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    action swap(inout inner_t x, inout inner_t y) {
        inner_t z = x;
        x = y;
        y = z;
    }
    table t {
        key = { hdr.h.s.two.b: exact; }
        actions = { NoAction; }
        const entries = { 7: NoAction(); }
    }
    apply {
        sm.egress_spec = 1;
        if (meta.kept == hdr.h.s) { sm.egress_spec = 2; }
        if (t.apply().hit) { sm.egress_spec = 3; }
        if (hdr.h.op == 1) {
            swap(hdr.h.s.one, hdr.h.s.two);
        } else if (hdr.h.op == 2) {
            hdr.h.s = { { 1, 2 }, 3, { 4, 5 } };
        } else if (hdr.h.op == 3) {
            hdr.more[0].s.one = hdr.h.s.two;
            hdr.h.s.c[3:0] = hdr.more[0].s.two.a;
        } else if (hdr.h.op == 4) {
            hash(meta.seen, HashAlgorithm.identity, 32w0, { hdr.h.s }, 32w0x1000000);
            hdr.h.s.c = (bit<8>) meta.seen;
        }
    }
}

V1Switch(P(), NoChecksums(), I(), PlainEgress(), NoChecksums(), EmitAll()) main;
