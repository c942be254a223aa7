// |+| and |-| at both signs.
#include <core.p4>
#include <v1model.p4>

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
    numbers_t i;
    numbers_t o;
}

struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.i);
        transition accept;
    }
}

#include "../include/blocks.p4"

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        hdr.o.setValid();
        hdr.o.ua = hdr.i.ua |+| hdr.i.ub;
        hdr.o.ub = hdr.i.ua |-| hdr.i.ub;
        hdr.o.sa = hdr.i.sa |+| hdr.i.sb;
        hdr.o.sb = hdr.i.sa |-| hdr.i.sb;
        hdr.o.wa = hdr.i.wa |+| hdr.i.wb;
        hdr.o.wb = hdr.i.wa |-| hdr.i.wb;
        hdr.o.xa = hdr.i.xa |+| hdr.i.xb;
        hdr.o.xb = hdr.i.xa |-| hdr.i.xb;
        hdr.i.setInvalid();
        standard_metadata.egress_spec = 1;
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), NoChecksums(), EmitAll()) main;
