// Slices read and assigned, concatenation, and a slice of a slice.
header word_t {
    bit<32> w;
    bit<13> odd;
    bit<3>  rest;
    bit<8>  bits;
}

struct headers_t {
    word_t h;
    word_t o;
}

struct metadata_t {
    bit<24> joined;
}

#include "include/one_header.p4"

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        hdr.o = hdr.h;
        hdr.o.w[31:24] = hdr.h.w[7:0];
        hdr.o.w[7:0] = hdr.h.w[31:24];
        hdr.o.w[15:15] = 1;
        hdr.o.odd[12:4] = hdr.h.w[19:4][11:3];
        hdr.o.odd[0:0] = ~hdr.h.odd[0:0];
        hdr.o.rest = hdr.h.bits[7:7] ++ hdr.h.bits[3:2];
        meta.joined = hdr.h.bits ++ hdr.h.odd ++ hdr.h.rest;
        hdr.o.bits = (bit<8>)(meta.joined >> 9);
        meta.joined[23:20] = 0;
        standard_metadata.egress_spec = (bit<9>)meta.joined[22:18];
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), NoChecksums(), EmitAll()) main;

/* packets
packet 0 12345678 abcd 5a ee
expect 2 12345678abcd5a7834d612564255ee
packet 0 ffffffff 0000 00
expect 0 ffffffff000000ffffffffff8800
packet 0 00000000 ffff ff
expect 3 00000000ffffff000080000077ff
*/
