// Validity, assignment and comparison of headers; a header of odd fields; structs in metadata.
header op_t {
    bit<8> op;
}

header pair_t {
    bit<3>  a;
    bit<13> b;
    bit<1>  c;
    bit<7>  d;
}

struct inner_t {
    bit<8>  x;
    bit<16> y;
}

struct outer_t {
    inner_t one;
    inner_t two;
    bit<8>  z;
}

struct headers_t {
    op_t   op;
    pair_t p;
    pair_t q;
    pair_t r;
}

struct metadata_t {
    outer_t outer;
    bit<8>  result;
}

#include "include/blocks.p4"

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.op);
        packet.extract(hdr.p);
        transition select(hdr.op.op) {
            0: accept;
            default: second;
        }
    }
    state second {
        packet.extract(hdr.q);
        transition accept;
    }
}

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        inner_t local;
        standard_metadata.egress_spec = 1;
        if (hdr.op.op == 1) {
            hdr.r = hdr.p;
            hdr.p.b = 0;
        } else if (hdr.op.op == 2) {
            hdr.p.setInvalid();
            hdr.q = hdr.p;
        } else if (hdr.op.op == 3) {
            hdr.r = { 1, 2, 1, 3 };
        } else if (hdr.op.op == 4) {
            meta.outer.one.x = (bit<8>)hdr.p.a;
            meta.outer.one.y = (bit<16>)hdr.p.b;
            meta.outer.two = meta.outer.one;
            meta.outer.one.y = 1;
            local = meta.outer.two;
            hdr.q.b = (bit<13>)local.y + (bit<13>)meta.outer.one.y;
            if (meta.outer.one == meta.outer.two) {
                hdr.q.d = 1;
            }
            if (local == meta.outer.two) {
                hdr.q.d = hdr.q.d | 2;
            }
        } else if (hdr.op.op == 5) {
            hdr.r.setInvalid();
            if (hdr.r == hdr.r) {
                hdr.p.c = 1;
            }
        }
        if (hdr.op.op != 5 && hdr.p == hdr.q) {
            hdr.op.op = 0xee;
        }
        if (hdr.q.isValid() && !hdr.r.isValid()) {
            standard_metadata.egress_spec = 2;
        }
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), NoChecksums(), EmitAll()) main;

/* packets
packet 0 00 a5a5 5a ff
expect 1 00a5a55aff
packet 0 01 a5a5 5a a5a5 5b ff
expect 1 01a0005aa5a55ba5a55aff
packet 0 02 a5a5 5a a5a5 5b ff
expect 1 eeff
packet 0 03 a5a5 5a a5a5 5b ff
expect 1 03a5a55aa5a55b200283ff
packet 0 04 a5a5 5a a5a5 00 ff
expect 2 04a5a55aa5a602ff
packet 0 04 a001 5a a5a5 00 ff
expect 2 04a0015aa00203ff
packet 0 05 a5a5 5a a5a5 5a ff
expect 2 05a5a5daa5a55aff
packet 0 06 a5a5 5a a5a5 5a ff
expect 2 eea5a55aa5a55aff
packet 0 06 a5a5 5a a5a5
expect 1 06a5a55aa5a5
*/
