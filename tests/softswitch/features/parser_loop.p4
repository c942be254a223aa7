// A parser that loops without consuming ends in ParserTimeout.
header h_t {
    bit<8> spin;
}

struct headers_t {
    h_t h;
}

struct metadata_t {
    bit<16> turns;
}

#include "include/blocks.p4"

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.h);
        transition turn;
    }
    state turn {
        meta.turns = meta.turns + 1;
        transition select(hdr.h.spin) {
            0: accept;
            default: turn;
        }
    }
}

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        standard_metadata.egress_spec = 1;
        if (standard_metadata.parser_error == error.ParserTimeout) {
            standard_metadata.egress_spec = 2;
        }
        if (meta.turns > 1) {
            hdr.h.spin = 0xff;
        }
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), NoChecksums(), EmitAll()) main;

/* packets
packet 0 00 aa
expect 1 00aa
packet 0 01 aa
expect 2 ffaa
*/
