// Egress: addresses each copy of a result to its worker, and keeps flooded frames
// from going back to where they came from.
#ifndef INA_DELIVERY_P4
#define INA_DELIVERY_P4

#include "headers.p4"

control Delivery(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard_metadata) {
    action deliver(mac_t mac, ipv4_t ip, bit<16> udp_port) {
        hdr.ethernet.src = hdr.ethernet.dst;    // the address that the workers send to
        hdr.ipv4.src = hdr.ipv4.dst;
        hdr.udp.src_port = hdr.udp.dst_port;
        hdr.ethernet.dst = mac;
        hdr.ipv4.dst = ip;
        hdr.udp.dst_port = udp_port;
    }

    action drop() {
        mark_to_drop(standard_metadata);
    }

    // The replication id of a copy is the rank that it is for.
    table receiver {
        key = { hdr.ina.job: exact; standard_metadata.egress_rid: exact; }
        actions = { deliver; drop; }
        const default_action = drop;
        size = JOB_ROWS * MAX_FAN_IN;
    }

    apply {
        if (meta.is_result == 1) {
            receiver.apply();
        } else if (meta.is_flood == 1
                   && standard_metadata.egress_port == standard_metadata.ingress_port) {
            drop();
        }
    }
}

#endif
