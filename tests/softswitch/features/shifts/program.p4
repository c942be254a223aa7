// Shifts by constants and by fields, by the width and more; arithmetic ones of int<W>.
#include <core.p4>
#include <v1model.p4>

header operands_t {
    bit<8>  amount;
    bit<32> u;
    int<32> s;
    bit<5>  u5;
    bit<3>  unused;
    bit<64> u64;
    int<16> s16;
}

header results_t {
    bit<32> left;
    bit<32> right;
    int<32> sleft;
    int<32> sright;
    bit<5>  left5;
    bit<3>  unused;
    bit<64> left64;
    bit<64> right64;
    int<16> sright16;
    bit<32> constant_left;
    int<32> constant_right;
    bit<32> beyond;
    int<32> sbeyond;
}

struct headers_t {
    operands_t i;
    results_t  o;
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
        hdr.o.left = hdr.i.u << hdr.i.amount;
        hdr.o.right = hdr.i.u >> hdr.i.amount;
        hdr.o.sleft = hdr.i.s << hdr.i.amount;
        hdr.o.sright = hdr.i.s >> hdr.i.amount;
        hdr.o.left5 = hdr.i.u5 << hdr.i.amount;
        hdr.o.left64 = hdr.i.u64 << hdr.i.amount;
        hdr.o.right64 = hdr.i.u64 >> hdr.i.amount;
        hdr.o.sright16 = hdr.i.s16 >> hdr.i.amount;
        hdr.o.constant_left = hdr.i.u << 4;
        hdr.o.constant_right = hdr.i.s >> 4;
        hdr.o.beyond = hdr.i.u >> 32;
        hdr.o.sbeyond = hdr.i.s >> 40;
        hdr.i.setInvalid();
        standard_metadata.egress_spec = 1;
    }
}

V1Switch(P(), NoChecksums(), C(), PlainEgress(), NoChecksums(), EmitAll()) main;
