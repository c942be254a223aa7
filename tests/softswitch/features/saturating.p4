// |+| and |-| at both signs.
header numbers_t {
    bit<8>  ua;
    bit<8>  ub;
    int<8>  sa;
    int<8>  sb;
    bit<32> wa;
    bit<32> wb;
    int<32> xa;
    int<32> xb;
}

struct headers_t {
    numbers_t h;
    numbers_t o;
}

struct metadata_t { }

#include "include/one_header.p4"

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        hdr.o.setValid();
        hdr.o.ua = hdr.h.ua |+| hdr.h.ub;
        hdr.o.ub = hdr.h.ua |-| hdr.h.ub;
        hdr.o.sa = hdr.h.sa |+| hdr.h.sb;
        hdr.o.sb = hdr.h.sa |-| hdr.h.sb;
        hdr.o.wa = hdr.h.wa |+| hdr.h.wb;
        hdr.o.wb = hdr.h.wa |-| hdr.h.wb;
        hdr.o.xa = hdr.h.xa |+| hdr.h.xb;
        hdr.o.xb = hdr.h.xa |-| hdr.h.xb;
        hdr.h.setInvalid();
        standard_metadata.egress_spec = 1;
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), NoChecksums(), EmitAll()) main;

/* packets
#        ua ub sa sb wa       wb       xa       xb
packet 0 c8 64 7f 01 ffffffff 00000001 7fffffff 00000001
expect 1 ff647f7efffffffffffffffe7fffffff7ffffffe
packet 0 64 c8 80 ff 00000001 00000002 80000000 ffffffff
expect 1 ff00808100000003000000008000000080000001
packet 0 10 20 80 80 00000003 00000002 80000000 80000000
expect 1 3000800000000005000000018000000000000000
packet 0 ff ff 7f 80 80000000 80000000 7fffffff 80000000
expect 1 ff00ff7fffffffff00000000ffffffff7fffffff
*/
