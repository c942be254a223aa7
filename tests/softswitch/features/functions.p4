// Functions, called in expressions and nested; locals and parameters in every direction; constants.
const bit<16> BASE = 4 * 25;
const bool ADD = true;

header h_t {
    bit<16> a;
    bit<16> b;
    bit<16> c;
}

struct headers_t {
    h_t h;
}

struct metadata_t { }

#include "include/one_header.p4"

bit<16> larger(in bit<16> x, in bit<16> y) {
    if (x > y) {
        return x;
    }
    return y;
}

bit<16> bump(inout bit<16> x, in bit<16> by) {
    bit<16> old = x;
    x = x + by;
    return old;
}

void split(in bit<16> x, out bit<8> high, out bit<8> low) {
    high = x[15:8];
    low = x[7:0];
}

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        bit<8> high;
        bit<8> low;
        hdr.h.c = larger(larger(hdr.h.a, hdr.h.b), BASE);
        bit<16> before = bump(hdr.h.a, ADD ? 16w1 : 16w2);
        hdr.h.b = bump(hdr.h.a, 0x10) - before;
        split(hdr.h.c, high, low);
        standard_metadata.egress_spec = (bit<9>)(high ^ low);
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), NoChecksums(), EmitAll()) main;

/* packets
packet 0 0001 0002 0000
expect 100 001200010064
packet 0 1234 0002 0000
expect 38 124500011234
packet 0 ffff 0102 0000
expect 0 00100001ffff
*/
