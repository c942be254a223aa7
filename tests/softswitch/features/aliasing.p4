// Copy-in, copy-out: what inout and out arguments that overlap do, left to right.
header h_t {
    bit<8> a;
    bit<8> b;
    bit<8> c;
    bit<8> d;
}

struct headers_t {
    h_t h;
    h_t g;
}

struct metadata_t {
    bit<8> m;
}

#include "include/one_header.p4"

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    action swap(inout bit<8> x, inout bit<8> y) {
        bit<8> t = x;
        x = y;
        y = t;
    }
    action both(inout bit<8> x, inout bit<8> y) {
        x = x + 1;
        y = y + 2;
    }
    action seen(in bit<8> x, inout bit<8> y) {
        y = y + 1;
        y = y + x;              // x is the value from before
        hdr.h.c = x;
    }
    action outs(out bit<8> x, out bit<8> y) {
        x = 5;
        y = 6;
    }
    action whole(inout h_t x, in h_t y) {
        x.a = 0xaa;
        x.b = y.a;
    }
    apply {
        standard_metadata.egress_spec = 1;
        if (hdr.h.d == 0) {
            swap(hdr.h.a, hdr.h.b);
        } else if (hdr.h.d == 1) {
            both(hdr.h.a, hdr.h.a);
        } else if (hdr.h.d == 2) {
            seen(hdr.h.a, hdr.h.a);
        } else if (hdr.h.d == 3) {
            outs(hdr.h.a, hdr.h.a);
        } else if (hdr.h.d == 4) {
            swap(hdr.h.a[7:0], hdr.h.b);
        } else if (hdr.h.d == 5) {
            whole(hdr.h, hdr.h);
        } else if (hdr.h.d == 6) {
            hdr.g = hdr.h;
            whole(hdr.g, hdr.h);
            swap(hdr.g.a, hdr.h.a);
        }
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), NoChecksums(), EmitAll()) main;

/* packets
packet 0 10 20 30 00
expect 1 20103000
packet 0 10 20 30 01
expect 1 12203001
packet 0 10 20 30 02
expect 1 21201002
packet 0 10 20 30 03
expect 1 06203003
packet 0 10 20 30 04
expect 1 20103004
packet 0 10 20 30 05
expect 1 aa103005
packet 0 10 20 30 06
expect 1 aa20300610103006
*/
