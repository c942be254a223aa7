// A parser that calls another, twice, with headers and metadata as arguments; values that come back.
header kind_t {
    bit<8> kind;
    bit<8> value;
}

header sum_t {
    bit<16> sum;
}

struct headers_t {
    kind_t outer;
    kind_t inner;
    sum_t  sum;
}

struct metadata_t {
    bit<16> sum;
}

#include "include/blocks.p4"

parser One(packet_in packet, out kind_t h, inout bit<16> sum, in bit<8> want) {
    state start {
        packet.extract(h);
        transition select(h.kind == want) {
            true:  good;
            false: bad;
        }
    }
    state good {
        sum = sum + (bit<16>)h.value;
        transition accept;
    }
    state bad {
        verify(h.value < 0x80, error.ParserInvalidArgument);
        sum = sum + 0x100;
        transition accept;
    }
}

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard_metadata) {
    One() one;
    state start {
        one.apply(packet, hdr.outer, meta.sum, 1);
        transition select(hdr.outer.value) {
            0: accept;
            default: second;
        }
    }
    state second {
        one.apply(packet, hdr.inner, meta.sum, 2);
        transition accept;
    }
}

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        hdr.sum.setValid();
        hdr.sum.sum = meta.sum;
        standard_metadata.egress_spec = 1;
        if (standard_metadata.parser_error != error.NoError) {
            standard_metadata.egress_spec = 2;
        }
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), NoChecksums(), EmitAll()) main;

/* packets
packet 0 01 00 ff
expect 1 01000000ff
packet 0 01 05 02 06 ff
expect 1 01050206000bff
packet 0 01 05 03 06 ff
expect 1 010503060105ff
packet 0 09 05 03 06 ff
expect 1 090503060200ff
packet 0 09 05 03 86 ff
expect 2 090503860100ff
packet 0 01 05 02
expect 2 0105000502
*/
