// select by value, mask, range, tuple and default; lookahead; advance.
#include <core.p4>
#include <v1model.p4>

header tag_t {
    bit<8>  kind;
    bit<16> value;
}

header small_t {
    bit<8> a;
}

header trail_t {
    bit<16> path;
    bit<16> seen;
}

struct headers_t {
    tag_t   tag;
    small_t small;
    trail_t trail;
}

struct metadata_t {
    bit<16> path;
    bit<16> seen;
}

const bit<8> SKIP = 0x20;

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.tag);
        meta.path = 1;
        transition select(hdr.tag.kind, hdr.tag.value) {
            (0x10, 0x1234):            exact;
            (0x10 &&& 0xf0, 5 .. 9):   ranged;
            (0x10 &&& 0xf0, _):        masked;
            (SKIP, default):           skip;
            (0x30 .. 0x3f, _):         look;
            (0x40, _):                 tail;
            default:                   accept;
        }
    }
    state exact {
        meta.path = meta.path + 10;
        transition small;
    }
    state ranged {
        meta.path = meta.path + 20;
        transition small;
    }
    state masked {
        meta.path = meta.path + 30;
        transition small;
    }
    state skip {
        packet.advance((bit<32>)hdr.tag.value << 3);
        meta.path = meta.path + 40;
        transition small;
    }
    state look {
        meta.seen = packet.lookahead<bit<16>>();
        meta.path = meta.path + 50;
        transition select(packet.lookahead<bit<4>>()) {
            0xa:     small;
            default: accept;
        }
    }
    state tail {
        meta.seen = (bit<16>)packet.lookahead<small_t>().a;
        transition accept;
    }
    state small {
        packet.extract(hdr.small);
        meta.path = meta.path + 100;
        transition accept;
    }
}

#include "../include/blocks.p4"

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        hdr.trail.setValid();
        hdr.trail.path = meta.path;
        hdr.trail.seen = meta.seen;
        standard_metadata.egress_spec = 1;
        if (standard_metadata.parser_error == error.PacketTooShort) {
            standard_metadata.egress_spec = 2;
        } else if (standard_metadata.parser_error != error.NoError) {
            standard_metadata.egress_spec = 3;
        }
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), NoChecksums(), EmitAll()) main;
