// Priorities decide between overlapping ternary, range, optional and mixed matches.
#include <core.p4>
#include <v1model.p4>

header key_t {
    bit<16> a;
    bit<8>  b;
    bit<8>  c;
    bit<8>  t;
    bit<8>  r;
    bit<8>  o;
    bit<8>  m;
}

struct headers_t {
    key_t k;
}

struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.k);
        transition accept;
    }
}

#include "../include/blocks.p4"

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    action t(bit<8> v) { hdr.k.t = v; }
    action r(bit<8> v) { hdr.k.r = v; }
    action o(bit<8> v) { hdr.k.o = v; }
    action m(bit<8> v) { hdr.k.m = v; }

    table ternaries {
        key = { hdr.k.a: ternary; hdr.k.b: ternary; }
        actions = { t; }
        default_action = t(0);
    }
    table ranges {
        key = { hdr.k.a: range; }
        actions = { r; }
        default_action = r(0);
    }
    table optionals {
        key = { hdr.k.b: optional; hdr.k.c: optional; }
        actions = { o; }
        default_action = o(0);
    }
    table mixed {
        key = { hdr.k.b: exact; hdr.k.a: lpm; hdr.k.c: ternary; }
        actions = { m; }
        default_action = m(0);
    }
    apply {
        ternaries.apply();
        ranges.apply();
        optionals.apply();
        mixed.apply();
        standard_metadata.egress_spec = 1;
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), NoChecksums(), EmitAll()) main;
