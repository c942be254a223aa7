// Loops of three clauses, over ranges and over lists, with break and continue; a return leaves them.
header h_t { bit<8> op; bit<8> n; bit<16> sum; }
header b_t { bit<8> v; }
struct headers_t { h_t h; b_t[3] s; }
struct metadata_t { }

#include "../../softswitch/features/include/blocks.p4"

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        packet.extract(hdr.h);
        packet.extract(hdr.s.next);
        packet.extract(hdr.s.next);
        packet.extract(hdr.s.next);
        transition accept;
    }
}

bit<16> first_above(in bit<8> n) {
    for (bit<16> i in 0 .. 100) {
        if (i * i > (bit<16>) n) { return i; }
    }
    return 0xffff;
}

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    action count(bit<8> most) {
        bit<8> n = 0;
        for (; n < most; n += 1) { hdr.h.sum = hdr.h.sum + 2; }
    }
    apply {
        sm.egress_spec = 1;
        if (hdr.h.op == 1) {
            for (bit<8> i = 0; i < hdr.h.n; i = i + 1) {
                bit<16> fresh;
                if (i == 3) { continue; }
                if (i == 6) { break; }
                fresh = fresh + (bit<16>) i;
                hdr.h.sum = hdr.h.sum + fresh;
            }
        } else if (hdr.h.op == 2) {
            for (bit<8> i in 250 .. hdr.h.n) {
                for (bit<8> j in i .. 255) {
                    if (j == 254) { break; }
                    hdr.h.sum = hdr.h.sum + 1;
                }
            }
        } else if (hdr.h.op == 3) {
            for (bit<16> v in (tuple<bit<16>, bit<16>, bit<16>>){ 1, 20, 300 }) {
                if (v == 20) { continue; }
                hdr.h.sum = hdr.h.sum + v;
            }
        } else if (hdr.h.op == 4) {
            for (b_t b in hdr.s) {
                if (b.v == 0) { break; }
                hdr.h.sum = hdr.h.sum + (bit<16>) b.v;
            }
        } else if (hdr.h.op == 5) {
            hdr.h.sum = first_above(hdr.h.n);
        } else if (hdr.h.op == 6) {
            count(hdr.h.n);
            count(1);
        } else if (hdr.h.op == 7) {
            for (;true;) { hdr.h.n = 1; }      // ends all the same
            for (int<8> i in -2 .. 1) { hdr.h.sum = hdr.h.sum + 1; }
        } else if (hdr.h.op == 8) {
            for (bit<8> i in (list<bit<8>>){ 1, hdr.h.n, 4 }) {     // what its elements are at first
                hdr.h.n = 100;
                i = i + 1;
                hdr.h.sum = hdr.h.sum + (bit<16>) i;
            }
            for (bit<8> i in (tuple<bit<8>, bit<8>>){ 1, hdr.h.n }) {
                hdr.h.n = hdr.h.n + i;
            }
        }
    }
}

V1Switch(P(), NoChecksums(), I(), PlainEgress(), NoChecksums(), EmitAll()) main;
