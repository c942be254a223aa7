// One aggregator slot in exclusive mode: which PSN it holds, who has contributed, the sum.
//
// A slot belongs to (generation, PSN). A packet of another generation (a job that is gone)
// or of a newer PSN claims it; because no sender's window exceeds half the region, every
// worker then has the older result. An older PSN is a late copy and never touches the slot.
#ifndef INA_AGGREGATOR_P4
#define INA_AGGREGATOR_P4

#include "headers.p4"

#if LANES == 32
#include "lanes_32.p4"
#elif LANES == 64
#include "lanes_64.p4"
#else
#include "lanes_256.p4"
#endif

// How a packet relates to the PSN that its slot holds.
const bit<2> RELATION_SAME  = 0;
const bit<2> RELATION_NEWER = 1;
const bit<2> RELATION_OLDER = 2;

control Aggregator(inout headers_t hdr, inout metadata_t meta) {
    register<bit<32>>(SLOTS) slot_generation;   // 0: never used
    register<bit<32>>(SLOTS) slot_psn;
    register<bit<32>>(SLOTS) slot_bitmap;
    register<bit<32>>(SLOTS) slot_tag;
    register<bit<8>>(SLOTS)  slot_exponent;
    register<bit<8>>(SLOTS)  slot_flags;        // FLAG_OVERFLOW, FLAG_DISAGREE
    Lanes() lanes;

    // Find the slot and compare. From here on the header holds what the slot
    // would hold with this packet in it: bitmap, exponent, tag and flags.
    action meet() {
        // offset + psn % size: P4 has no `%` on run-time values, the identity hash does it
        hash(meta.index, HashAlgorithm.identity, meta.region_offset,
             { hdr.ina.psn }, meta.region_size);

        bit<32> generation;
        bit<32> psn;
        bit<32> bitmap;
        bit<32> tag;
        bit<8>  exponent;
        bit<8>  flags;
        slot_generation.read(generation, meta.index);
        slot_psn.read(psn, meta.index);
        slot_bitmap.read(bitmap, meta.index);
        slot_tag.read(tag, meta.index);
        slot_exponent.read(exponent, meta.index);
        slot_flags.read(flags, meta.index);

        bit<32> age = hdr.ina.psn - psn;        // serial number arithmetic, RFC 1982
        meta.relation = age == 0 ? RELATION_SAME : RELATION_NEWER;
        meta.relation = age[31:31] == 1 ? RELATION_OLDER : meta.relation;
        meta.relation = generation != meta.generation ? RELATION_NEWER : meta.relation;

        bool fresh = meta.relation == RELATION_NEWER;
        bitmap   = fresh ? 0 : bitmap;
        exponent = fresh ? 0 : exponent;
        flags    = fresh ? 0 : flags;
        tag      = fresh ? hdr.ina.tag : tag;

        meta.query = (hdr.ina.flags & FLAG_QUERY) != 0 ? 1w1 : 1w0;
        meta.seen = (bitmap & hdr.ina.bitmap) != 0 ? 1w1 : 1w0;
        hdr.ina.bitmap = bitmap | hdr.ina.bitmap;
        meta.full = hdr.ina.bitmap == meta.full_bitmap ? 1w1 : 1w0;
        hdr.ina.exponent = meta.seen == 0 && hdr.ina.exponent > exponent ? hdr.ina.exponent : exponent;
        hdr.ina.flags = flags | (meta.seen == 0 && hdr.ina.tag != tag ? FLAG_DISAGREE : 0);
        hdr.ina.tag = tag;
    }

    action keep() {
        hdr.ina.flags = hdr.ina.flags | (meta.overflow == 1 ? FLAG_OVERFLOW : 0);
        slot_generation.write(meta.index, meta.generation);
        slot_psn.write(meta.index, hdr.ina.psn);
        slot_bitmap.write(meta.index, hdr.ina.bitmap);
        slot_tag.write(meta.index, hdr.ina.tag);
        slot_exponent.write(meta.index, hdr.ina.exponent);
        slot_flags.write(meta.index, hdr.ina.flags);
    }

    action decide(outcome_t outcome, bit<2> lane_operation) {
        meta.outcome = outcome;
        meta.lane_operation = lane_operation;
    }

    // Every combination is listed; a reader can check it against docs/protocol.md.
    table decision {
        key = {
            meta.relation: ternary;
            meta.seen:     ternary;
            meta.full:     ternary;
            meta.query:    ternary;
        }
        actions = { decide; }
        const default_action = decide(OUTCOME_STALE, LANES_NONE);
        const entries = {
            // first contribution; alone in its job, it is complete at once
            (RELATION_NEWER, _, 0, _): decide(OUTCOME_AGGREGATED, LANES_OVERWRITE);
            (RELATION_NEWER, _, 1, _): decide(OUTCOME_COMPLETED,  LANES_OVERWRITE);
            // one more contribution; the last one completes the sum
            (RELATION_SAME,  0, 0, _): decide(OUTCOME_AGGREGATED, LANES_ADD);
            (RELATION_SAME,  0, 1, _): decide(OUTCOME_COMPLETED,  LANES_ADD);
            // already counted: the finished sum again, or who is missing, or nothing
            (RELATION_SAME,  1, 1, _): decide(OUTCOME_REPLAYED,   LANES_FETCH);
            (RELATION_SAME,  1, 0, 1): decide(OUTCOME_STATUS,     LANES_NONE);
            (RELATION_SAME,  1, 0, 0): decide(OUTCOME_DUPLICATE,  LANES_NONE);
            // a late copy of a PSN whose slot has moved on
            (RELATION_OLDER, _, _, _): decide(OUTCOME_STALE,      LANES_NONE);
        }
    }

    apply {
        meet();
        decision.apply();
        lanes.apply(hdr, meta);
        if (meta.outcome == OUTCOME_AGGREGATED || meta.outcome == OUTCOME_COMPLETED) {
            keep();
        }
    }
}

#endif
