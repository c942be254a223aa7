// The exclusive program for Tofino: a private region of slots for every job (SwitchML, NSDI'21).
// One pass, and one read-modify-write of every register in it. Its differences from the v1model
// program, and its tests, are in docs/reference/tofino.md.
//
// The stages of Tofino 1 into which p4c places it (docs/results/chip-fit.md):
//
//   stage 0     the sender, and the region of its job
//         1     the PSN of the slot: is this packet's the same, newer or older?
//         2     the contributors, exponent, flags
//         3-10  the lanes, four to a stage; beside them, the packet's outcome
#include <core.p4>
#if __TARGET_TOFINO__ == 2
#include <t2na.p4>
#else
#include <tna.p4>
#endif

#include "include/exclusive_slot.p4"
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
    action contributes(bit<8> counter_row, index_t mask, index_t place, bit<32> full_bitmap,
                       bit<1> root) {
        meta.counter_row = counter_row;
        meta.position = hdr.ina.psn[15:0] & mask;
        meta.place = place;
        meta.full_bitmap = full_bitmap;
        meta.root = root;
        meta.flags = (bit<32>)(hdr.ina.flags & FLAGS_OF_SUM);
    }

    action comes_down(bit<8> counter_row, index_t mask, index_t place, bit<32> full_bitmap) {
        meta.counter_row = counter_row;
        meta.position = hdr.ina.psn[15:0] & mask;
        meta.place = place;
        meta.full_bitmap = full_bitmap;
        meta.flags = (bit<32>)hdr.ina.flags | SLOT_FINAL;
    }

    // The children of this node, and results from the switch above. A child's packet must name that
    // child and this node: `bitmap` is exact, so it is one contribution.
    table member {
        key = {
            intrinsic.ingress_port: exact;
            hdr.ina.kind:           exact;
            hdr.ina.job:            exact;
            hdr.ina.epoch:          exact;
            hdr.ina.node:           exact;
            hdr.ina.bitmap:         exact;
            hdr.ina.fan_in:         exact;
        }
        actions = { contributes; comes_down; NoAction; }
        const default_action = NoAction;
        size = MEMBERS;
    }

    // Count the packet for no job: a broken packet could name any job.
    action refuse(outcome_t outcome) {
        meta.outcome = outcome;
        meta.counter_row = 0;
    }

    apply {
        bool fits = false;
        if (hdr.ina.isValid()) {
            // they are independent: both look-ups are in one stage
            shape.apply(hdr, fits);
            bool known = member.apply().hit;
            if (meta.bad_checksum == 1) {
                refuse(outcome_t.BAD_CHECKSUM);
            } else if (!fits) {
                refuse(outcome_t.BAD_LENGTH);
            } else if (!known) {
                meta.outcome = outcome_t.UNKNOWN_JOB;
            } else if (hdr.ina.flags[7:7] == 1) {
                // raw values: only a fallback server could add them, and none exists
                meta.outcome = outcome_t.NO_UPLINK;
            } else {
                slot.apply(hdr, meta);
            }
        }
        leaving.apply(hdr, meta, intrinsic, for_deparser, for_tm);
    }
}

Pipeline(IngressParser(), Ingress(), IngressDeparser(),
         EgressParser(), Egress(), EgressDeparser()) pipe;
Switch(pipe) main;
