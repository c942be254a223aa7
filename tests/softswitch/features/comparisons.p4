// Signed and unsigned order, equality, and short-circuit logic; each result is a bit.
header operands_t {
    bit<16> a;
    bit<16> b;
    int<16> c;
    int<16> d;
    bit<1>  p;
    bit<1>  q;
    bit<6>  unused;
}

header results_t {
    bit<1>  ult;
    bit<1>  ule;
    bit<1>  ugt;
    bit<1>  uge;
    bit<1>  slt;
    bit<1>  sle;
    bit<1>  sgt;
    bit<1>  sge;
    bit<1>  eq;
    bit<1>  ne;
    bit<1>  seq;
    bit<1>  conjunction;
    bit<1>  disjunction;
    bit<1>  negation;
    bit<1>  chosen;
    bit<1>  signed_constant;
    bit<16> maximum;
    int<16> minimum;
}

struct headers_t {
    operands_t h;
    results_t  o;
}

struct metadata_t { }

#include "include/one_header.p4"

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        bool p = hdr.h.p == 1;
        bool q = (bool)hdr.h.q;
        hdr.o.setValid();
        hdr.o.ult = (bit<1>)(hdr.h.a < hdr.h.b);
        hdr.o.ule = (bit<1>)(hdr.h.a <= hdr.h.b);
        hdr.o.ugt = (bit<1>)(hdr.h.a > hdr.h.b);
        hdr.o.uge = (bit<1>)(hdr.h.a >= hdr.h.b);
        hdr.o.slt = (bit<1>)(hdr.h.c < hdr.h.d);
        hdr.o.sle = (bit<1>)(hdr.h.c <= hdr.h.d);
        hdr.o.sgt = (bit<1>)(hdr.h.c > hdr.h.d);
        hdr.o.sge = (bit<1>)(hdr.h.c >= hdr.h.d);
        hdr.o.eq = (bit<1>)(hdr.h.a == hdr.h.b);
        hdr.o.ne = (bit<1>)(hdr.h.a != hdr.h.b);
        hdr.o.seq = (bit<1>)(hdr.h.c == hdr.h.d);
        hdr.o.conjunction = (bit<1>)(p && q);
        hdr.o.disjunction = (bit<1>)(p || q);
        hdr.o.negation = (bit<1>)(!p);
        hdr.o.chosen = p ? hdr.h.q : (bit<1>)(!q && hdr.h.a == 7 || p);
        hdr.o.signed_constant = (bit<1>)(hdr.h.c < -3);
        hdr.o.maximum = hdr.h.a > hdr.h.b ? hdr.h.a : hdr.h.b;
        hdr.o.minimum = hdr.h.c < hdr.h.d ? hdr.h.c : hdr.h.d;
        hdr.h.setInvalid();
        standard_metadata.egress_spec = 1;
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), NoChecksums(), EmitAll()) main;

/* packets
packet 0 0001 0002 0001 0002 00
expect 1 cc4400020001
packet 0 0001 ffff 0001 ffff 40
expect 1 c34cffffffff
packet 0 ffff 0001 8000 7fff 80
expect 1 3c49ffff8000
packet 0 0007 0007 fffe fffe c0
expect 1 55ba0007fffe
packet 0 0007 0007 fffc fffe 00
expect 1 5c870007fffc
*/
