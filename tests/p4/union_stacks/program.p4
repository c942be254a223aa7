// A stack of unions: next, last, indices, push and pop; members stay in step.
header byte_t { bit<4> tag; bit<4> v; }
header word_t { bit<4> tag; bit<12> v; }
header_union u_t { byte_t b; word_t w; }
header n_t { bit<8> count; bit<8> op; }
struct headers_t { n_t n; u_t[3] u; }
struct metadata_t { bit<8> left; u_t[3] copy; }

#include "../../softswitch/features/include/blocks.p4"

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.n);
        meta.left = hdr.n.count;
        transition more;
    }
    state more { transition select(meta.left) { 0: accept; default: one; } }
    state one {
        meta.left = meta.left - 1;
        transition select(packet.lookahead<bit<4>>()) { 1: byte; 2: word; default: accept; }
    }
    state byte { packet.extract(hdr.u.next.b); transition more; }
    state word {
        packet.extract(hdr.u.next.w);
        hdr.n.op = hdr.n.op + (bit<8>) hdr.u.last.w.v;
        transition more;
    }
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        sm.egress_spec = 1;
        bit<8> op = hdr.n.op & 0xf0;
        if (op == 0x10) {
            hdr.u.push_front(1);
            hdr.u[0].w.setValid();
            hdr.u[0].w = { 2, 0xfff };
        } else if (op == 0x20) {
            hdr.u.pop_front(1);
        } else if (op == 0x30) {
            bit<8> i = hdr.n.op & 0xf;
            hdr.u[i].b = { 1, 15 };
        } else if (op == 0x40) {
            meta.copy = hdr.u;
            hdr.u[0] = meta.copy[1];
            if (meta.copy == hdr.u) { sm.egress_spec = 2; }
            if (meta.copy[2] == hdr.u[2]) { sm.egress_spec = sm.egress_spec + 4; }
        }
    }
}

V1Switch(P(), NoChecksums(), I(), PlainEgress(), NoChecksums(), EmitAll()) main;
