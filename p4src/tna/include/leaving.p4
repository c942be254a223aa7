// The end of ingress: counts a packet's outcome, and sends the packet.
#ifndef INA_TNA_LEAVING_P4
#define INA_TNA_LEAVING_P4

#include "config.p4"

control Leaving(inout tna_headers_t hdr, inout tna_metadata_t meta,
                in ingress_intrinsic_metadata_t intrinsic,
                inout ingress_intrinsic_metadata_for_deparser_t for_deparser,
                inout ingress_intrinsic_metadata_for_tm_t for_tm) {
    // Packets per (job, outcome); row 0 counts packets of no admitted job.
    Counter<bit<32>, bit<13>>(JOB_ROWS * 32, CounterType_t.PACKETS) outcomes;

    action drop() {
        for_deparser.drop_ctl = 1;
    }

    action to_sender() {
        for_tm.ucast_egress_port = intrinsic.ingress_port;
    }

    action to_port(PortId_t port) {
        for_tm.ucast_egress_port = port;
    }

    action to_group(bit<16> group) {
        for_tm.mcast_grp_a = group;
    }

    // Way TO_SENDER needs no entry.
    table exits {
        key = { meta.way: exact; hdr.ina.job: exact; }
        actions = { to_port; to_group; drop; }
        const default_action = drop;
        size = 512;
    }

    // Ordinary traffic is bridged.
    table bridge {
        key = { hdr.ethernet.dst: exact; }
        actions = { to_port; to_group; drop; }
        default_action = drop;
        size = 1024;
    }

    action without_lanes() {
        hdr.lanes.setInvalid();
        hdr.ina.lanes = 0;
        hdr.ina.valid = 0;
        hdr.udp.length = UDP_BYTES + INA_BYTES;
        hdr.ipv4.total_len = IPV4_BYTES + UDP_BYTES + INA_BYTES;
    }

    apply {
        if (!hdr.ina.isValid()) {
            bridge.apply();
        } else {
            if (hdr.ina.kind == KIND_STATUS) {
                without_lanes();
            }
            if (meta.way == TO_SENDER) {
                to_sender();
            } else if (meta.way == TO_NOBODY) {
                drop();
            } else {
                exits.apply();
            }
            outcomes.count(meta.counter_row ++ (bit<5>)meta.outcome);
        }
    }
}

#endif
