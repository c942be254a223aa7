// One aggregator slot in exclusive mode: its PSN, its contributors, the sum.
//
// A slot belongs to (generation, PSN). A packet of another generation (of a job that has ended)
// or of a newer PSN claims it; because no sender's window exceeds half the region, every
// worker then has the older result. An older PSN is a late copy and never touches the slot.
#ifndef INA_AGGREGATOR_P4
#define INA_AGGREGATOR_P4

#include "headers.p4"
#include "lane_work.p4"
#include "lanes.p4"

// The relation of a packet's PSN to the PSN of its slot.
const bit<2> RELATION_NONE  = 0;    // the job has no slots
const bit<2> RELATION_SAME  = 1;
const bit<2> RELATION_NEWER = 2;
const bit<2> RELATION_OLDER = 3;

// A flag of slots that no packet carries.
const bit<8> SLOT_FINAL = 0x01;     // the lanes hold the job's result

control Aggregator(inout headers_t hdr, inout metadata_t meta,
                   in standard_metadata_t standard_metadata) {
    register<bit<32>>(SLOTS) slot_generation;   // 0: never used
    register<bit<32>>(SLOTS) slot_psn;
    register<bit<32>>(SLOTS) slot_bitmap;
    register<bit<32>>(SLOTS) slot_tag;
    register<bit<8>>(SLOTS)  slot_exponent;
    register<bit<8>>(SLOTS)  slot_flags;        // FLAGS_OF_RESULT, SLOT_FINAL, SLOT_BARE
    LaneWork() lane_work;
    Lanes() lanes;

    bit<2> relation = RELATION_NONE;
    bit<1> final = 0;   // the slot holds the result of this PSN
    bit<1> seen = 0;    // this contributor is already in the slot
    bit<1> full = 0;    // all contributors are in, this packet included
    bit<8> asked = 0;   // the packet's FLAGS_ASKING on arrival
    bit<8> flags = 0;

    // Find the slot, and compare its generation and PSN with the packet's.
    action meet() {
        // offset + psn % size: P4 has no `%` on run-time values, so use the identity hash
        hash(meta.index, HashAlgorithm.identity, meta.region_offset,
             { hdr.ina.psn }, meta.region_size);
        bit<32> generation;
        bit<32> psn;
        slot_generation.read(generation, meta.index);
        slot_psn.read(psn, meta.index);
        slot_flags.read(flags, meta.index);

        bit<32> age = hdr.ina.psn - psn;        // serial number arithmetic, RFC 1982
        relation = age == 0 ? RELATION_SAME : RELATION_NEWER;
        relation = age[31:31] == 1 ? RELATION_OLDER : relation;
        relation = generation != meta.generation ? RELATION_NEWER : relation;
        flags = relation == RELATION_SAME ? flags : 0;
        final = flags[0:0];
        meta.bare = flags[6:6];
    }

    // From here on a contribution's header holds the slot's values including this contribution:
    // bitmap, exponent, tag and flags.
    action join() {
        bit<32> bitmap;
        bit<32> tag;
        bit<8>  exponent;
        slot_bitmap.read(bitmap, meta.index);
        slot_tag.read(tag, meta.index);
        slot_exponent.read(exponent, meta.index);
        bool same = relation == RELATION_SAME;
        bitmap   = same ? bitmap : 0;
        exponent = same ? exponent : 0;
        tag      = same ? tag : hdr.ina.tag;

        asked = hdr.ina.flags & FLAGS_ASKING;
        seen = (bitmap & hdr.ina.bitmap) != 0 ? 1w1 : 1w0;
        hdr.ina.bitmap = bitmap | hdr.ina.bitmap;
        full = hdr.ina.bitmap == meta.full_bitmap ? 1w1 : 1w0;
        hdr.ina.exponent = seen == 0 && hdr.ina.exponent > exponent ? hdr.ina.exponent : exponent;
        hdr.ina.flags = (flags & FLAGS_OF_RESULT) | (seen == 1 ? 0 : hdr.ina.flags & FLAGS_OF_SUM)
                        | (seen == 0 && hdr.ina.tag != tag ? FLAG_DISAGREE : 0);
        hdr.ina.tag = tag;
    }

    action hold(bit<32> bitmap, bit<8> slot_only) {
        slot_generation.write(meta.index, meta.generation);
        slot_psn.write(meta.index, hdr.ina.psn);
        slot_bitmap.write(meta.index, bitmap);
        slot_tag.write(meta.index, hdr.ina.tag);
        slot_exponent.write(meta.index, hdr.ina.exponent);
        slot_flags.write(meta.index, (hdr.ina.flags & FLAGS_OF_RESULT) | slot_only
                                     | (meta.bare == 1 ? SLOT_BARE : 0));
    }

    action decide(outcome_t outcome, bit<3> lane_operation, bit<2> way, bit<4> kind) {
        meta.outcome = outcome;
        meta.lane_operation = lane_operation;
        meta.way = way;
        meta.kind = kind;
    }

    // Every combination is listed; a reader can check it against docs/reference/protocol/switch.md.
    // A contribution of a worker, or of a switch below:
    table gradient {
        key = {
            relation:   ternary;
            final:      ternary;
            seen:       ternary;
            full:       ternary;
            asked[1:1]: ternary @name("query");
            asked[7:7]: ternary @name("raw");
            meta.root:  ternary;
        }
        actions = { decide; }
        const default_action = decide(outcome_t.NO_UPLINK, LANES_NONE, TO_NOBODY, 0);
        const entries = {
            // relation, final, seen, full, query, raw, root
            // raw values, or no memory: only a fallback server could add it, and none exists
            (_,              _, _, _, _, 1, _): decide(outcome_t.NO_UPLINK,  LANES_NONE,      TO_NOBODY, 0);
            (RELATION_NONE,  _, _, _, _, _, _): decide(outcome_t.NO_UPLINK,  LANES_NONE,      TO_NOBODY, 0);
            // first contribution; alone in its job, it is complete at once
            (RELATION_NEWER, _, _, 0, _, _, _): decide(outcome_t.AGGREGATED, LANES_OVERWRITE, TO_NOBODY, 0);
            (RELATION_NEWER, _, _, 1, _, _, 1): decide(outcome_t.COMPLETED,  LANES_OVERWRITE, TO_GROUP,  KIND_RESULT);
            (RELATION_NEWER, _, _, 1, _, _, 0): decide(outcome_t.COMPLETED,  LANES_OVERWRITE, TO_UPLINK, KIND_GRADIENT);
            // one more contribution; the last one completes the sum
            (RELATION_SAME,  _, 0, 0, _, _, _): decide(outcome_t.AGGREGATED, LANES_ADD,       TO_NOBODY, 0);
            (RELATION_SAME,  _, 0, 1, _, _, 1): decide(outcome_t.COMPLETED,  LANES_ADD,       TO_GROUP,  KIND_RESULT);
            (RELATION_SAME,  _, 0, 1, _, _, 0): decide(outcome_t.COMPLETED,  LANES_ADD,       TO_UPLINK, KIND_GRADIENT);
            // already counted: send the result again, the sum up again, a status, or nothing
            (RELATION_SAME,  1, 1, _, _, _, _): decide(outcome_t.REPLAYED,   LANES_FETCH,     TO_SENDER, KIND_RESULT);
            (RELATION_SAME,  0, 1, 1, _, _, _): decide(outcome_t.RELAYED,    LANES_FETCH,     TO_UPLINK, KIND_GRADIENT);
            (RELATION_SAME,  0, 1, 0, 1, _, _): decide(outcome_t.STATUS,     LANES_NONE,      TO_SENDER, KIND_STATUS);
            (RELATION_SAME,  0, 1, 0, 0, _, _): decide(outcome_t.DUPLICATE,  LANES_NONE,      TO_NOBODY, 0);
            // a late copy of a PSN whose slot has moved on
            (RELATION_OLDER, _, _, _, _, _, _): decide(outcome_t.STALE,      LANES_NONE,      TO_NOBODY, 0);
        }
    }

    // A result from the switch above; no other kind comes to a slot.
    table result {
        key = {
            hdr.ina.kind: ternary;
            relation:     ternary;
            final:        ternary;
        }
        actions = { decide; }
        // reminders come from fallback servers; this mode has none
        const default_action = decide(outcome_t.WRONG_DIRECTION, LANES_NONE, TO_NOBODY, 0);
        const entries = {
            // kind, relation, final
            // keep the first copy for children that lose it; without lanes, if no child takes the sum
            (KIND_RESULT, RELATION_SAME,  0): decide(outcome_t.STORED,      LANES_OVERWRITE, TO_GROUP,  KIND_RESULT);
            (KIND_RESULT, RELATION_SAME,  1): decide(outcome_t.DUPLICATE,   LANES_NONE,      TO_NOBODY, 0);
            // a late copy
            (KIND_RESULT, RELATION_OLDER, _): decide(outcome_t.STALE,       LANES_NONE,      TO_NOBODY, 0);
            // no slot that could keep the result
            (KIND_RESULT, _,              _): decide(outcome_t.PASSED_DOWN, LANES_NONE,      TO_GROUP,  KIND_RESULT);
        }
    }

    apply {
        if (meta.region_size != 0) {
            meet();
        }
        if (meta.from_above == 1) {
            result.apply();
        } else {
            join();
            gradient.apply();
        }
        lane_work.apply(hdr, meta);
        if (meta.leaves_with_lanes == 1) {
            hdr.lanes.setValid();
        }
        lanes.apply(hdr, meta);
        if (meta.leaves_with_lanes == 0) {
            hdr.lanes.setInvalid();
        }
        hdr.ina.flags = hdr.ina.flags | (meta.overflow == 1 ? FLAG_OVERFLOW : 0);

        if (meta.outcome == outcome_t.AGGREGATED) {
            hold(hdr.ina.bitmap, 0);
        } else if (meta.outcome == outcome_t.COMPLETED) {
            hold(hdr.ina.bitmap, meta.root == 1 ? SLOT_FINAL : 0);
        } else if (meta.outcome == outcome_t.STORED) {
            hold(meta.full_bitmap, SLOT_FINAL);
        } else if (meta.outcome == outcome_t.RELAYED) {
            hdr.ina.flags = hdr.ina.flags | asked;  // pass the query on to the switch above
        }
    }
}

#endif
