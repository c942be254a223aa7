// Admits a packet to the aggregators only if it is whole and its sender was admitted
// to its job at the ingress port (invariant 3, isolation).
#ifndef INA_ADMISSION_P4
#define INA_ADMISSION_P4

#include "headers.p4"

control Admission(inout headers_t hdr, inout metadata_t meta,
                  in standard_metadata_t standard_metadata, out bool admitted) {
    // At a switch that only forwards (`transit`), fan-in, full bitmap and node belong to the next
    // switch above that aggregates; its children are members here.
    action set_job(bit<11> counter_row, bit<32> offset, bit<32> size, bit<32> generation,
                   bit<8> fan_in, bit<32> full_bitmap, bit<16> group, bit<16> node,
                   bit<32> result_bitmap, bit<1> root, bit<1> transit, bit<1> preempt,
                   bit<8> ageing, bit<32> window, bit<32> max_age_us) {
        meta.counter_row = counter_row;
        meta.region_offset = offset;
        meta.region_size = size;
        meta.generation = generation;
        meta.fan_in = fan_in;
        meta.full_bitmap = full_bitmap;
        meta.group = group;
        meta.node = node;
        meta.result_bitmap = result_bitmap;
        meta.root = root;
        meta.transit = transit;
        meta.preempt = preempt;
        meta.ageing = ageing;
        meta.window = window;
        meta.max_age_us = max_age_us;
    }

    // The children at this port: several if a switch in between only forwards. And the nodes of the
    // tree below the port: parts of their sums can come only from this port.
    action set_member(bit<32> bitmap, bit<16> first_node, bit<16> node_count) {
        meta.member_bitmap = bitmap;
        meta.first_node = first_node;
        meta.node_count = node_count;
    }

    action set_parent() {
        meta.from_above = 1;
    }

    table job {
        key = { hdr.ina.job: exact; }
        actions = { set_job; NoAction; }
        const default_action = NoAction;
        size = JOB_ROWS;
    }

    table member {
        key = { hdr.ina.job: exact; standard_metadata.ingress_port: exact; }
        actions = { set_member; set_parent; NoAction; }
        const default_action = NoAction;
        size = JOB_ROWS * (MAX_FAN_IN + 1);
    }

    // The number of lanes of each kind. A contribution without lanes adds no values to the sum; a
    // result without lanes is for ranks that do not take the sum.
    table shape {
        key = { hdr.ina.kind: exact; hdr.ina.lanes: exact; }
        actions = { NoAction; }
        const default_action = NoAction;
        const entries = {
            (KIND_GRADIENT, LANES): NoAction();
            (KIND_GRADIENT, 0):     NoAction();
            (KIND_PARTIAL,  LANES): NoAction();
            (KIND_PARTIAL,  0):     NoAction();
            (KIND_RESULT,   LANES): NoAction();
            (KIND_RESULT,   0):     NoAction();
            (KIND_STATUS,   0):     NoAction();
            (KIND_REMINDER, 0):     NoAction();
        }
    }

    // The direction of each kind: up from children, down from the switch above or the fallback server.
    table direction {
        key = { meta.from_above: exact; hdr.ina.kind: exact; }
        actions = { NoAction; }
        const default_action = NoAction;
        const entries = {
            (0, KIND_GRADIENT): NoAction();
            (0, KIND_PARTIAL):  NoAction();
            (0, KIND_RESULT):   NoAction();     // a worker has the result that a reminder requests
            (1, KIND_RESULT):   NoAction();
            (1, KIND_STATUS):   NoAction();
            (1, KIND_REMINDER): NoAction();
        }
    }

    apply {
        bit<16> bytes = IPV4_BYTES + UDP_BYTES + INA_BYTES + (hdr.ina.lanes == 0 ? 0 : LANE_BYTES);
        bit<16> valid = hdr.ina.valid & ((hdr.ina.flags & FLAG_RAW) != 0 ? ~VALID_INT32 : 0xffff);
        admitted = false;
        if (hdr.ina.version != INA_VERSION) {
            meta.outcome = outcome_t.BAD_VERSION;
        } else if (hdr.ina.kind == 0 || hdr.ina.kind > KIND_REMINDER) {
            meta.outcome = outcome_t.BAD_KIND;
        } else if (!shape.apply().hit) {
            meta.outcome = outcome_t.BAD_LANES;
        } else if (hdr.udp.length != bytes - IPV4_BYTES || hdr.ipv4.total_len != bytes
                   || standard_metadata.packet_length != (bit<32>)(ETHERNET_BYTES + bytes)
                   || valid > LANES) {
            meta.outcome = outcome_t.BAD_LENGTH;
        } else if (!job.apply().hit) {
            meta.outcome = outcome_t.UNKNOWN_JOB;
        } else if (!member.apply().hit) {
            meta.outcome = outcome_t.WRONG_PORT;
        } else if (hdr.ina.epoch != meta.generation[7:0]) {
            meta.outcome = outcome_t.WRONG_EPOCH;
        } else if (!direction.apply().hit) {
            meta.outcome = outcome_t.WRONG_DIRECTION;
        } else if (meta.from_above == 1) {
            admitted = true;
        } else if (hdr.ina.kind == KIND_PARTIAL) {
            // part of a sum of a node below; workers are not nodes
            admitted = hdr.ina.node - meta.first_node < meta.node_count;
            meta.outcome = outcome_t.WRONG_RANK;
        } else if (hdr.ina.kind == KIND_RESULT) {
            // a result is the sum of the whole job, whichever node kept it
            admitted = hdr.ina.node == ROOT_NODE && hdr.ina.bitmap == meta.result_bitmap;
            meta.outcome = outcome_t.WRONG_RANK;
        } else if ((hdr.ina.bitmap & meta.member_bitmap) == 0
                   || (hdr.ina.bitmap & (hdr.ina.bitmap - 1)) != 0
                   || hdr.ina.node != meta.node) {
            meta.outcome = outcome_t.WRONG_RANK;  // a contribution comes from exactly one child
        } else if (hdr.ina.fan_in != meta.fan_in) {
            meta.outcome = outcome_t.WRONG_FAN_IN;
        } else {
            admitted = true;
        }
    }
}

#endif
