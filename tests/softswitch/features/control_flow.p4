// if/else chains, return from controls and actions, exit from inside both, switch on a field.
header op_t {
    bit<8>  code;
    bit<8>  trace;
    bit<16> value;
}

struct headers_t {
    op_t h;
}

struct metadata_t { }

#include "include/one_header.p4"

control Inner(inout headers_t hdr) {
    action leave() {
        hdr.h.trace[1:1] = 1;
        exit;
    }
    apply {
        hdr.h.trace[0:0] = 1;
        if (hdr.h.code == 3) {
            return;
        }
        if (hdr.h.code == 4) {
            leave();
        }
        hdr.h.trace[2:2] = 1;
    }
}

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    Inner() inner;

    action classify() {
        if (hdr.h.value > 1000) {
            hdr.h.value = 1000;
            return;
        }
        hdr.h.value = hdr.h.value + 1;
    }

    apply {
        standard_metadata.egress_spec = 1;
        if (hdr.h.code == 1) {
            hdr.h.trace = 0xf0;
        } else if (hdr.h.code == 2) {
            return;
        } else {
            inner.apply(hdr);
            hdr.h.trace[3:3] = 1;
        }
        classify();
        switch (hdr.h.value) {
            16w1: { standard_metadata.egress_spec = 11; }
            16w2:
            16w3: { standard_metadata.egress_spec = 12; }
            1000: { standard_metadata.egress_spec = 13; }
            default: { hdr.h.trace[7:7] = 1; }
        }
        if (hdr.h.code == 5) {
            exit;
        }
        hdr.h.trace[6:6] = 1;
    }
}

// Runs after exit in ingress all the same.
control E(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        if (hdr.h.code == 6) {
            exit;
        }
        hdr.h.code = 0xee;
    }
}

V1Switch(P(), NoChecksums(), C(), E(), NoChecksums(), EmitAll()) main;

/* packets
packet 0 01 00 0000
expect 11 eef00001
packet 0 02 00 0000
expect 1 ee000000
packet 0 03 00 0001
expect 12 ee490002
packet 0 04 00 0001
expect 1 ee030001
packet 0 05 00 0002
expect 12 ee0d0003
packet 0 06 00 03e9
expect 13 064d03e8
packet 0 00 00 0063
expect 1 eecd0064
*/
