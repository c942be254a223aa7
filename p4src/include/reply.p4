// Turns a packet into its reply: sets its kind and destination.
#ifndef INA_REPLY_P4
#define INA_REPLY_P4

#include "headers.p4"

control Reply(inout headers_t hdr, inout metadata_t meta,
              inout standard_metadata_t standard_metadata) {
    // Send the packet back: exchange source and destination.
    action turn_round() {
        standard_metadata.egress_spec = standard_metadata.ingress_port;
        mac_t mac = hdr.ethernet.src;
        hdr.ethernet.src = hdr.ethernet.dst;
        hdr.ethernet.dst = mac;
        ipv4_t ip = hdr.ipv4.src;
        hdr.ipv4.src = hdr.ipv4.dst;
        hdr.ipv4.dst = ip;
        bit<16> udp_port = hdr.udp.src_port;
        hdr.udp.src_port = hdr.udp.dst_port;
        hdr.udp.dst_port = udp_port;
    }

    apply {
        if (meta.way == TO_NOBODY) {
            mark_to_drop(standard_metadata);
            return;
        }
        if (meta.kind == KIND_RESULT && hdr.ina.kind != KIND_RESULT) {
            hdr.ina.node = ROOT_NODE;       // a result is the sum of the whole job, whichever node kept it
            hdr.ina.bitmap = meta.result_bitmap;
            hdr.ipv4.ecn = 0;               // marks that the contribution met on its way are in the sum
        } else if (meta.kind == KIND_STATUS) {
            hdr.lanes.setInvalid();
            hdr.ina.valid = 0;
        }
        hdr.ina.kind = meta.kind;
        if (meta.way == TO_SENDER) {
            turn_round();
        } else {
            meta.is_addressed = 1;
            standard_metadata.mcast_grp = meta.way == TO_GROUP ? meta.group : 0;
        }
    }
}

#endif
