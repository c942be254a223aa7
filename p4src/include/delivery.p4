// Egress: addresses each copy of an INA packet to its receiver, and drops flooded frames
// at their ingress port.
#ifndef INA_DELIVERY_P4
#define INA_DELIVERY_P4

#include "headers.p4"

const bit<8> INA_TTL = 64;

control Delivery(inout headers_t hdr, inout metadata_t meta,
                 inout standard_metadata_t standard_metadata) {
    action address(mac_t mac, ipv4_t ip, bit<16> udp_port) {
        hdr.ethernet.src = hdr.ethernet.dst;    // the switch's address for this sender
        hdr.ipv4.src = hdr.ipv4.dst;
        hdr.udp.src_port = hdr.udp.dst_port;
        hdr.ethernet.dst = mac;
        hdr.ipv4.dst = ip;
        hdr.udp.dst_port = udp_port;
    }

    // To a worker.
    action deliver(mac_t mac, ipv4_t ip, bit<16> udp_port, bit<16> rank) {
        address(mac, ip, udp_port);
        meta.first_rank = rank;
        meta.rank_count = 1;
    }

    // To another switch with workers behind it: a range of ranks, given by the first and the count.
    // The switch or server above has all ranks behind it.
    action pass_on(mac_t mac, ipv4_t ip, bit<16> udp_port, bit<16> first_rank, bit<16> rank_count) {
        address(mac, ip, udp_port);
        meta.first_rank = first_rank;
        meta.rank_count = rank_count;
    }

    action drop() {
        mark_to_drop(standard_metadata);
    }

    // The replication id of a copy is one more than the bit number of its child;
    // a packet that goes up is not replicated and has 0.
    table receiver {
        key = { hdr.ina.job: exact; standard_metadata.egress_rid: exact; }
        actions = { deliver; pass_on; drop; }
        const default_action = drop;
        size = JOB_ROWS * (MAX_FAN_IN + 1);
    }

    // Correct lengths, and no UDP checksum, as the payload is new (zero is "none", RFC 768).
    action finish(bit<16> lanes, bit<16> lane_bytes) {
        hdr.ina.lanes = lanes;
        hdr.udp.length = UDP_BYTES + INA_BYTES + lane_bytes;
        hdr.udp.checksum = 0;
        hdr.ipv4.total_len = IPV4_BYTES + UDP_BYTES + INA_BYTES + lane_bytes;
        hdr.ipv4.ttl = INA_TTL;
    }

    apply {
        if (hdr.ina.isValid()) {
            if (meta.is_addressed == 1) {
                receiver.apply();
                // Only ranks that take the sum need its lanes, and the switches on the way to them.
                bit<16> rank = hdr.ina.target & ~TARGET_BUT;
                bool there = rank - meta.first_rank < meta.rank_count;
                bool takes = (hdr.ina.target & TARGET_BUT) == 0
                             ? there : !(there && meta.rank_count == 1);
                if (hdr.ina.kind == KIND_RESULT && !takes) {
                    hdr.lanes.setInvalid();
                    hdr.ina.valid = 0;
                } else if (hdr.ina.kind == KIND_REMINDER && !takes) {
                    drop();             // it is for a rank elsewhere, or a switch on the way there
                }
            }
            if (hdr.lanes.isValid()) {
                finish(LANES, LANE_BYTES);
            } else {
                finish(0, 0);
            }
        } else if (meta.is_flood == 1
                   && standard_metadata.egress_port == standard_metadata.ingress_port) {
            drop();
        }
    }
}

#endif
