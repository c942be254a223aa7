// Lets a packet near the aggregators only if it is whole and its sender was admitted
// to its job at the port that it came from (invariant 3, isolation).
#ifndef INA_ADMISSION_P4
#define INA_ADMISSION_P4

#include "headers.p4"

control Admission(inout headers_t hdr, inout metadata_t meta,
                  in standard_metadata_t standard_metadata, out bool admitted) {
    action set_job(bit<11> counter_row, bit<32> offset, bit<32> size, bit<32> generation,
                   bit<8> fan_in, bit<32> full_bitmap, bit<16> group) {
        meta.counter_row = counter_row;
        meta.region_offset = offset;
        meta.region_size = size;
        meta.generation = generation;
        meta.full_bitmap = full_bitmap;
        meta.group = group;
        meta.fan_in = fan_in;
    }

    action set_member(bit<32> bitmap) {
        meta.member_bitmap = bitmap;
    }

    table job {
        key = { hdr.ina.job: exact; }
        actions = { set_job; NoAction; }
        const default_action = NoAction;
        size = JOB_ROWS;
    }

    table member {
        key = { hdr.ina.job: exact; standard_metadata.ingress_port: exact; }
        actions = { set_member; NoAction; }
        const default_action = NoAction;
        size = JOB_ROWS * MAX_FAN_IN;
    }

    apply {
        admitted = false;
        if (hdr.ina.version != INA_VERSION) {
            meta.outcome = OUTCOME_BAD_VERSION;
        } else if (hdr.ina.kind != KIND_GRADIENT) {
            meta.outcome = OUTCOME_BAD_KIND;
        } else if (hdr.ina.lanes != LANES) {
            meta.outcome = OUTCOME_BAD_LANES;
        } else if (!hdr.lanes.isValid()
                   || hdr.ipv4.total_len != IPV4_BYTES + UDP_BYTES + INA_BYTES + LANE_BYTES
                   || standard_metadata.packet_length
                      != (bit<32>)(ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES + INA_BYTES + LANE_BYTES)
                   || hdr.ina.valid > LANES) {
            meta.outcome = OUTCOME_BAD_LENGTH;
        } else if (!job.apply().hit) {
            meta.outcome = OUTCOME_UNKNOWN_JOB;
        } else if (!member.apply().hit) {
            meta.outcome = OUTCOME_WRONG_PORT;
        } else if (hdr.ina.bitmap != meta.member_bitmap) {
            meta.outcome = OUTCOME_WRONG_RANK;
        } else if (hdr.ina.fan_in != meta.fan_in) {
            meta.outcome = OUTCOME_WRONG_FAN_IN;
        } else {
            admitted = true;
        }
    }
}

#endif
