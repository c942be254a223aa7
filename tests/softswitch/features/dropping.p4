// mark_to_drop in ingress and egress, undone by a later egress_spec; the drop port by hand.
header h_t {
    bit<8> op;
}

struct headers_t {
    h_t h;
}

struct metadata_t { }

#include "include/one_header.p4"

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    counter(1, CounterType.packets) seen;
    apply {
        seen.count(0);
        if (hdr.h.op == 0) {
            mark_to_drop(standard_metadata);
        } else if (hdr.h.op == 1) {
            mark_to_drop(standard_metadata);
            standard_metadata.egress_spec = 4;
        } else if (hdr.h.op == 2) {
            standard_metadata.egress_spec = 511;
        } else if (hdr.h.op == 3) {
            mark_to_drop(standard_metadata);
            exit;
        }
        // with nothing said, to port 0
    }
}

control E(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    apply {
        if (hdr.h.op == 4) {
            mark_to_drop(standard_metadata);
        } else if (hdr.h.op == 5) {
            mark_to_drop(standard_metadata);
            standard_metadata.egress_spec = 7;      // undoes the drop, moves nothing
        } else if (hdr.h.op == 6) {
            standard_metadata.egress_port = 9;      // moves nothing either
        }
    }
}

V1Switch(P(), NoChecksums(), C(), E(), NoChecksums(), EmitAll()) main;

/* packets
packet 2 00 aa
expect nothing
packet 2 01 aa
expect 4 01aa
packet 2 02 aa
expect nothing
packet 2 03 aa
expect nothing
packet 2 04 aa
expect nothing
packet 2 05 aa
expect 0 05aa
packet 2 06 aa
expect 0 06aa
packet 2 07 aa
expect 0 07aa
counter seen 0 = 8 16
*/
