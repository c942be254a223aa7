// select by value, mask, range, tuple and default; lookahead; advance.
header tag_t {
    bit<8>  kind;
    bit<16> value;
}

header small_t {
    bit<8> a;
}

header wide_t {
    bit<4>   first;
    bit<12>  second;
    bit<112> third;
    bit<32>  last;
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

#include "include/blocks.p4"

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
            (0x41, _):                 wide;
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
    state wide {
        wide_t ahead = packet.lookahead<wide_t>();
        meta.seen = (bit<16>)ahead.second + (bit<16>)ahead.third + (bit<16>)ahead.last + (bit<16>)ahead.first;
        transition small;
    }
    state small {
        packet.extract(hdr.small);
        meta.path = meta.path + 100;
        transition accept;
    }
}

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

/* packets
packet 0 10 1234 77 88
expect 1 10123477006f000088
packet 0 10 0005 77 88
expect 1 100005770079000088
packet 0 1f 0009 77 88
expect 1 1f0009770079000088
packet 0 1f 000a 77 88
expect 1 1f000a770083000088
packet 0 20 0002 aabb 77 88
expect 1 20000277008d000088
packet 0 20 0000 77 88
expect 1 20000077008d000088
packet 0 20 0003 aabb 77
expect 2 20000300290000
packet 0 20 0004 aabb 77          # advances beyond the end
expect 2 20000400010000aabb77
packet 0 30 0000 a5ff 88
expect 1 300000a50097a5ffff88
packet 0 3f 0000 b5ff 88
expect 1 3f00000033b5ffb5ff88
packet 0 38 0000 a5               # lookahead beyond the end
expect 2 38000000010000a5
packet 0 40 0000 5a88
expect 1 4000000001005a5a88
packet 0 40 0000
expect 2 40000000010000
packet 0 41 0000 f123 0000000000000000000000004500 00006000 99
expect 1 410000f10065a6322300000000000000000000000045000000600099
packet 0 41 0000 f123 0000000000000000000000004500 000060    # a byte of 20 is missing
expect 2 41000000010000f1230000000000000000000000004500000060
packet 0 50 0000 5a88
expect 1 500000000100005a88
*/
