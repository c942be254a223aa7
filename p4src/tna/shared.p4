// The shared program for Tofino: slots that all jobs compete for (ATP, NSDI'21; preemption as in
// ESA, ICNP'23). A packet without a slot goes to the job's fallback server. One pass, and one
// read-modify-write of every register in it. Its differences from the v1model program, and its
// tests, are in docs/reference/tofino.md.
//
// The stages of Tofino 1 into which p4c places it (docs/results/chip-fit.md):
//
//   stage 0     the sender, and the region of its job
//         1     the slot's strength: may this packet take it?
//         2     the slot's owner
//         3     the contributors, exponent, flags
//         4-11  the lanes, four to a stage; beside them, the packet's outcome
//
// A packet cannot return to a register that it has passed, so the packet that empties a slot cannot
// free it. That packet only clears the bitmap; a copy of it without lanes, sent back into the
// pipeline, resets the slot's strength. Strength does not identify the owner: sums stay right for
// any strength, and a packet that finds the slot taken goes to the fallback server.
#include <core.p4>
#if __TARGET_TOFINO__ == 2
#include <t2na.p4>
#else
#include <tna.p4>
#endif

#include "include/shared_slot.p4"
#include "include/parser.p4"
#include "include/egress.p4"
#include "include/leaving.p4"

control Ingress(inout tna_headers_t hdr, inout tna_metadata_t meta,
                in ingress_intrinsic_metadata_t intrinsic,
                in ingress_intrinsic_metadata_from_parser_t from_parser,
                inout ingress_intrinsic_metadata_for_deparser_t for_deparser,
                inout ingress_intrinsic_metadata_for_tm_t for_tm) {
    Shape() shape;
    Slot() slot;
    Leaving() leaving;

    // A region has a power of two of slots, `mask` + 1, and begins at a multiple of that.
    action locate(bit<8> counter_row, bit<16> mask, bit<16> place) {
        meta.counter_row = counter_row;
        meta.position = hdr.ina.psn[15:0] & mask;
        meta.place = place;
        meta.owner = hdr.ina.job ++ hdr.ina.epoch ++ 8w0;
        meta.flags = hdr.ina.flags & FLAGS_OF_SUM;
    }

    action contributes(bit<8> counter_row, bit<16> mask, bit<16> place, bit<32> others, bit<1> root) {
        locate(counter_row, mask, place);
        meta.others = others;
        meta.root = root;
        meta.strength = STRENGTH_WITHOUT_PRIORITY;
    }

    // A contribution of a job that may preempt.
    action contends(bit<8> counter_row, bit<16> mask, bit<16> place, bit<32> others, bit<1> root) {
        locate(counter_row, mask, place);
        meta.others = others;
        meta.root = root;
        meta.strength = 8w1 ++ hdr.ina.priority;
        meta.preempt = 1;
    }

    action unknown() {
        meta.outcome = outcome_t.UNKNOWN_JOB;
    }

    // The children of this node. A child's packet must name that child and this node: `bitmap` is
    // exact, so it is one contribution.
    table member {
        key = {
            intrinsic.ingress_port: exact;
            hdr.ina.job:            exact;
            hdr.ina.epoch:          exact;
            hdr.ina.node:           exact;
            hdr.ina.bitmap:         exact;
            hdr.ina.fan_in:         exact;
        }
        actions = { contributes; contends; unknown; }
        const default_action = unknown;
        size = MEMBERS;
    }

    action pass(bit<8> counter_row, outcome_t outcome, bit<2> way) {
        meta.counter_row = counter_row;
        meta.outcome = outcome;
        meta.way = way;
    }

    // Packets other than contributions. Parts of sums of nodes below, and a worker's copy of a result,
    // are passed up; statuses, and reminders for others, down. Results from above, reminders for
    // this node and releases from this pipeline go to the slot.
    table neighbour {
        key = {
            intrinsic.ingress_port: exact;
            hdr.ina.kind:           exact;
            hdr.ina.job:            exact;
            hdr.ina.epoch:          exact;
            hdr.ina.node:           range;
            hdr.ina.bitmap:         ternary;
        }
        actions = { locate; pass; unknown; }
        const default_action = unknown;
        size = 1024;
    }

    // Count the packet for no job: a broken packet could name any job.
    action refuse(outcome_t outcome) {
        meta.outcome = outcome;
        meta.counter_row = 0;
        meta.way = TO_NOBODY;
    }

    apply {
        bool fits = false;
        bool meets = false;
        if (hdr.ina.isValid()) {
            // these are independent: all look-ups are in one stage
            shape.apply(hdr, fits);
            if (hdr.ina.kind == KIND_GRADIENT) {
                meets = member.apply().hit;
            } else {
                switch (neighbour.apply().action_run) {
                    locate: { meets = true; }
                }
            }
            if (meta.bad_checksum == 1) {
                refuse(outcome_t.BAD_CHECKSUM);
            } else if (!fits) {
                refuse(outcome_t.BAD_LENGTH);
            } else if (meets) {
                slot.apply(hdr, meta);
            }
        }
        // The packet that emptied a slot comes back once, to free it.
        if (meta.frees == 1) {
            for_tm.mcast_grp_b = GROUP_OF_SELF;
        }
        leaving.apply(hdr, meta, intrinsic, for_deparser, for_tm);
    }
}

Pipeline(IngressParser(), Ingress(), IngressDeparser(),
         EgressParser(), Egress(), EgressDeparser()) pipe;
Switch(pipe) main;
