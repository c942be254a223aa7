// Turns an aggregated packet into what its job is to see: the sum to every worker,
// a cached sum or the state of the slot to the sender, or nothing.
#ifndef INA_REPLY_P4
#define INA_REPLY_P4

#include "headers.p4"

const bit<8> INA_TTL = 64;

control Reply(inout headers_t hdr, inout metadata_t meta,
              inout standard_metadata_t standard_metadata) {
    // Back to where the packet came from, from where it was sent to.
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

    action finish(bit<4> kind) {
        hdr.ina.kind = kind;
        hdr.ipv4.ttl = INA_TTL;
        hdr.udp.checksum = 0;   // the payload changed; zero is "none" (RFC 768)
    }

    action without_lanes() {
        hdr.lanes.setInvalid();
        hdr.ina.lanes = 0;
        hdr.ina.valid = 0;
        hdr.udp.length = UDP_BYTES + INA_BYTES;
        hdr.ipv4.total_len = IPV4_BYTES + UDP_BYTES + INA_BYTES;
    }

    apply {
        if (meta.outcome == OUTCOME_COMPLETED) {
            finish(KIND_RESULT);
            meta.is_result = 1;
            standard_metadata.mcast_grp = meta.group;
        } else if (meta.outcome == OUTCOME_REPLAYED) {
            finish(KIND_RESULT);
            turn_round();
        } else if (meta.outcome == OUTCOME_STATUS) {
            finish(KIND_STATUS);
            without_lanes();
            turn_round();
        } else {
            mark_to_drop(standard_metadata);
        }
    }
}

#endif
