// One aggregator slot in shared mode: its owner, its contributors, the sum.
//
// A slot belongs to (generation, PSN) from the first contribution that finds it free until the
// sum is complete, taken out, too old, or outranked. A packet that finds it taken goes to its job's
// fallback server, which can add any disjoint parts of a sum; so every sum is right even if slots
// lose their parts. Only the bitmap distinguishes a part from a whole sum.
#ifndef INA_AGGREGATOR_P4
#define INA_AGGREGATOR_P4

#include "addressing.p4"
#include "eviction.p4"
#include "headers.p4"
#include "lane_work.p4"
#include "lanes.p4"
#include "slot.p4"

// A complete sum at the root is the result, and its slot is then free for others. With HELD_SLOTS
// (ATP) it goes to the fallback server like any part, and its slot stays taken until the server's
// result passes.
#ifdef HELD_SLOTS
#define WAY_OF_RESULT  TO_UPLINK
#define KIND_OF_RESULT KIND_PARTIAL
#define DONE_AT_ROOT   8w0
#define DONE_BELOW     8w0
#else
#define WAY_OF_RESULT  TO_GROUP
#define KIND_OF_RESULT KIND_RESULT
#define DONE_AT_ROOT   (SLOT_FULL | SLOT_FINAL)
#define DONE_BELOW     SLOT_FULL
#endif

// The relation of a packet to its slot.
const bit<2> RELATION_NONE  = 0;    // the job has no slots
const bit<2> RELATION_SAME  = 1;    // the slot holds this PSN of this job
const bit<2> RELATION_FREE  = 2;    // it holds no sum that is still needed
const bit<2> RELATION_OTHER = 3;

// A packet's operation on the slot's state, as LANES_* are for its lanes.
const bit<3> SLOT_KEEP    = 0;      // change nothing
const bit<3> SLOT_AGE     = 1;      // record the collision and age the slot: its priority falls
const bit<3> SLOT_JOIN    = 2;
const bit<3> SLOT_CLAIM   = 3;
const bit<3> SLOT_RELEASE = 4;
const bit<3> SLOT_STORE   = 5;      // keep a result from above

// Flags of slots that no packet carries.
const bit<8> SLOT_FINAL = 0x01;     // the lanes hold the job's result
const bit<8> SLOT_FULL  = 0x02;     // all contributors are in: from now on only a cache

control Aggregator(inout headers_t hdr, inout metadata_t meta,
                   in standard_metadata_t standard_metadata) {
    register<bit<32>>(SLOTS) slot_generation;
    register<bit<32>>(SLOTS) slot_psn;
    register<bit<32>>(SLOTS) slot_bitmap;
    register<bit<32>>(SLOTS) slot_tag;
    register<bit<32>>(SLOTS) slot_touched;
    register<bit<8>>(SLOTS)  slot_exponent;
    register<bit<8>>(SLOTS)  slot_flags;
    register<bit<16>>(SLOTS) slot_job;
    register<bit<16>>(SLOTS) slot_target;
#if ADDRESSING == SALTED
    @name("slot_salt")      // its name in P4Info shows controllers the field's meaning
#endif
    register<bit<8>>(SLOTS)  slot_priority;
    Addressing() addressing;
    Eviction() eviction;
    LaneWork() lane_work;
    Lanes() lanes;

    slot_t slot = { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 };
    bit<32> now = (bit<32>)standard_metadata.ingress_global_timestamp;
    bit<2> relation = RELATION_NONE;
    bit<1> final = 0;       // the slot holds the result of this PSN
    bit<1> seen = 0;        // this contributor is already in the slot
    bit<1> full = 0;        // all contributors are in, this packet included
    bit<1> aged = 0;        // the packet may take another sum's slot, because that sum is too old,
    bit<1> outranks = 0;    // or because the packet is more urgent
    bit<8> asked = 0;       // the packet's FLAGS_ASKING on arrival
    bit<3> slot_operation = SLOT_KEEP;

    // Read the slot's state, and compare it with the packet.
    action meet() {
        slot_generation.read(slot.generation, meta.index);
        slot_psn.read(slot.psn, meta.index);
        slot_bitmap.read(slot.bitmap, meta.index);
        slot_tag.read(slot.tag, meta.index);
        slot_touched.read(slot.touched, meta.index);
        slot_exponent.read(slot.exponent, meta.index);
        slot_flags.read(slot.flags, meta.index);
        slot_job.read(slot.job, meta.index);
        slot_target.read(slot.target, meta.index);
        slot_priority.read(slot.priority, meta.index);

        bool mine = slot.generation == meta.generation;
        bit<32> age = hdr.ina.psn - slot.psn;       // serial number arithmetic, RFC 1982
        bool finished = mine && age[31:31] == 0 && age >= meta.window;
        bool orphaned = !mine && slot.job == hdr.ina.job;
        bool free = slot.bitmap == 0 || (slot.flags & SLOT_FULL) != 0 || finished || orphaned;
        relation = free ? RELATION_FREE : RELATION_OTHER;
        relation = mine && age == 0 && slot.bitmap != 0 ? RELATION_SAME : relation;
        final = relation == RELATION_SAME ? slot.flags[0:0] : 0;
        meta.bare = slot.flags[6:6];
    }

    // From here on a contribution's header holds the slot's values including this contribution:
    // bitmap, exponent, tag and flags. Raw values stay as they are.
    action join() {
        bool same = relation == RELATION_SAME && (hdr.ina.flags & FLAG_RAW) == 0;
        bit<32> bitmap   = same ? slot.bitmap : 0;
        bit<32> tag      = same ? slot.tag : hdr.ina.tag;
        bit<8>  exponent = same ? slot.exponent : 0;
        bit<8>  flags    = same ? slot.flags & FLAGS_OF_RESULT : 0;

        asked = hdr.ina.flags & FLAGS_ASKING;
        seen = (bitmap & hdr.ina.bitmap) != 0 ? 1w1 : 1w0;
        hdr.ina.bitmap = bitmap | hdr.ina.bitmap;
        full = hdr.ina.bitmap == meta.full_bitmap ? 1w1 : 1w0;
        hdr.ina.exponent = seen == 0 && hdr.ina.exponent > exponent ? hdr.ina.exponent : exponent;
        hdr.ina.flags = flags | (seen == 1 ? 0 : hdr.ina.flags & FLAGS_OF_SUM)
                        | (seen == 0 && hdr.ina.tag != tag ? FLAG_DISAGREE : 0);
        hdr.ina.tag = tag;
    }

    // The slot's sum leaves in this packet.
    action take_out() {
        hdr.ina.job = slot.job;
        hdr.ina.psn = slot.psn;
        hdr.ina.epoch = slot.generation[7:0];
        hdr.ina.bitmap = slot.bitmap;
        hdr.ina.tag = slot.tag;
        hdr.ina.exponent = slot.exponent;
        hdr.ina.flags = slot.flags & FLAGS_OF_RESULT;
        hdr.ina.target = slot.target;
        hdr.ina.priority = slot.priority;
        hdr.ina.fan_in = meta.fan_in;
        hdr.ina.valid = LANES;
    }

    action claim() {
        slot_generation.write(meta.index, meta.generation);
        slot_psn.write(meta.index, hdr.ina.psn);
        slot_job.write(meta.index, hdr.ina.job);
        slot_target.write(meta.index, hdr.ina.target);
    }

    action hold(bit<32> bitmap, bit<8> slot_only) {
        slot_bitmap.write(meta.index, bitmap);
        slot_tag.write(meta.index, hdr.ina.tag);
        slot_exponent.write(meta.index, hdr.ina.exponent);
        slot_flags.write(meta.index, (hdr.ina.flags & FLAGS_OF_RESULT) | slot_only
                                     | (meta.bare == 1 ? SLOT_BARE : 0));
        slot_priority.write(meta.index, hdr.ina.priority);  // with every contribution, as in ESA
        slot_touched.write(meta.index, now);
    }

    action release() {
        slot_bitmap.write(meta.index, 0);
    }

    action age() {
#ifndef HELD_SLOTS
        slot_flags.write(meta.index, slot.flags | FLAG_COLLISION);  // ATP reports a collision only to the loser
#endif
        bit<8> loss = meta.preempt == 1 ? meta.ageing : 0;
        slot_priority.write(meta.index, slot.priority > loss ? slot.priority - loss : 0);
    }

    action decide(outcome_t outcome, bit<3> lane_operation, bit<3> operation, bit<2> way, bit<4> kind) {
        meta.outcome = outcome;
        meta.lane_operation = lane_operation;
        slot_operation = operation;
        meta.way = way;
        meta.kind = kind;
    }

    // In the tables below the first matching row applies; docs/reference/protocol/shared.md has them in words.
    // A contribution of a worker, or of a switch below:
    table gradient {
        key = {
            asked[7:7]: ternary @name("raw");
            relation:   ternary;
            final:      ternary;
            seen:       ternary;
            full:       ternary;
            asked[0:0]: ternary @name("resend");
            asked[1:1]: ternary @name("query");
            asked[6:6]: ternary @name("bypass");
            aged:       ternary;
            outranks:   ternary;
            meta.root:  ternary;
        }
        actions = { decide; }
        const default_action = decide(outcome_t.BYPASSED, LANES_NONE, SLOT_KEEP, TO_UPLINK, KIND_PARTIAL);
        const entries = {
            // raw, relation, final, seen, full, resend, query, bypass, aged, outranks, root
            // raw values, which no slot can add
            (1, _,              _, _, _, _, _, _, _, _, _): decide(outcome_t.BYPASSED,   LANES_NONE,      SLOT_KEEP,    TO_UPLINK, KIND_PARTIAL);
            // the slot holds the result
            (_, RELATION_SAME,  1, _, _, _, _, _, _, _, _): decide(outcome_t.REPLAYED,   LANES_FETCH,     SLOT_KEEP,    TO_SENDER, KIND_RESULT);
            // the last contribution
            (_, RELATION_SAME,  0, 0, 1, _, _, _, _, _, 1): decide(outcome_t.COMPLETED,  LANES_ADD,       SLOT_JOIN,    WAY_OF_RESULT, KIND_OF_RESULT);
            (_, RELATION_SAME,  0, 0, 1, _, _, _, _, _, 0): decide(outcome_t.COMPLETED,  LANES_ADD,       SLOT_JOIN,    TO_UPLINK, KIND_GRADIENT);
            // one more contribution; a resend takes the slot's sum along, as others may be lost
            (_, RELATION_SAME,  0, 0, 0, 1, 0, _, _, _, _): decide(outcome_t.FLUSHED,    LANES_ADD,       SLOT_RELEASE, TO_UPLINK, KIND_PARTIAL);
            (_, RELATION_SAME,  0, 0, 0, _, _, _, _, _, _): decide(outcome_t.AGGREGATED, LANES_ADD,       SLOT_JOIN,    TO_NOBODY, 0);
            // already counted, the complete sum went up: send it again on request
            (_, RELATION_SAME,  0, 1, 1, 1, _, _, _, _, 1): decide(outcome_t.RELAYED,    LANES_FETCH,     SLOT_KEEP,    TO_UPLINK, KIND_PARTIAL);
            (_, RELATION_SAME,  0, 1, 1, 1, _, _, _, _, 0): decide(outcome_t.RELAYED,    LANES_FETCH,     SLOT_KEEP,    TO_UPLINK, KIND_GRADIENT);
            (_, RELATION_SAME,  0, 1, 1, 0, _, _, _, _, _): decide(outcome_t.DUPLICATE,  LANES_NONE,      SLOT_KEEP,    TO_NOBODY, 0);
            // already counted, others are missing: send a status, take the sum out, or nothing
            (_, RELATION_SAME,  0, 1, 0, _, 1, _, _, _, _): decide(outcome_t.STATUS,     LANES_NONE,      SLOT_KEEP,    TO_SENDER, KIND_STATUS);
            (_, RELATION_SAME,  0, 1, 0, 1, 0, _, _, _, _): decide(outcome_t.FLUSHED,    LANES_FETCH,     SLOT_RELEASE, TO_UPLINK, KIND_PARTIAL);
            (_, RELATION_SAME,  0, 1, 0, 0, 0, _, _, _, _): decide(outcome_t.DUPLICATE,  LANES_NONE,      SLOT_KEEP,    TO_NOBODY, 0);
            // alone in its job: complete without a slot
            (_, _,              _, _, 1, _, _, _, _, _, 1): decide(outcome_t.COMPLETED,  LANES_NONE,      SLOT_KEEP,    WAY_OF_RESULT, KIND_OF_RESULT);
            (_, _,              _, _, 1, _, _, _, _, _, 0): decide(outcome_t.COMPLETED,  LANES_NONE,      SLOT_KEEP,    TO_UPLINK, KIND_GRADIENT);
            // must not claim a slot, or has none
            (_, _,              _, _, _, 1, _, _, _, _, _): decide(outcome_t.BYPASSED,   LANES_NONE,      SLOT_KEEP,    TO_UPLINK, KIND_PARTIAL);
            (_, _,              _, _, _, _, _, 1, _, _, _): decide(outcome_t.BYPASSED,   LANES_NONE,      SLOT_KEEP,    TO_UPLINK, KIND_PARTIAL);
            (_, RELATION_NONE,  _, _, _, _, _, _, _, _, _): decide(outcome_t.BYPASSED,   LANES_NONE,      SLOT_KEEP,    TO_UPLINK, KIND_PARTIAL);
            // first contribution
            (_, RELATION_FREE,  _, _, _, _, _, _, _, _, _): decide(outcome_t.AGGREGATED, LANES_OVERWRITE, SLOT_CLAIM,   TO_NOBODY, 0);
            // first contribution, which evicts another sum
            (_, RELATION_OTHER, _, _, _, _, _, _, 1, _, _): decide(outcome_t.RECLAIMED,  LANES_EXCHANGE,  SLOT_CLAIM,   TO_UPLINK, KIND_PARTIAL);
            (_, RELATION_OTHER, _, _, _, _, _, _, 0, 1, _): decide(outcome_t.PREEMPTED,  LANES_EXCHANGE,  SLOT_CLAIM,   TO_UPLINK, KIND_PARTIAL);
            // the slot is taken by another sum
            (_, RELATION_OTHER, _, _, _, _, _, _, 0, 0, _): decide(outcome_t.COLLIDED,   LANES_NONE,      SLOT_AGE,     TO_UPLINK, KIND_PARTIAL);
        }
    }

    // A result or a reminder from above:
    table order {
        key = {
            hdr.ina.kind:             ternary;
            hdr.ina.flags[7:7]:       ternary @name("raw");
            hdr.ina.node == meta.node: ternary @name("for_this_node");
            relation:                 ternary;
            final:                    ternary;
            meta.bare:                ternary;
            meta.root:                ternary;
        }
        actions = { decide; }
        const default_action = decide(outcome_t.PASSED_DOWN, LANES_NONE, SLOT_KEEP, TO_GROUP, KIND_RESULT);
        const entries = {
            // kind, raw, for_this_node, relation, final, bare, root
            // a result completes its slot's sum, and is kept for children that lose it
#ifdef HELD_SLOTS
            (KIND_RESULT,   _, _,    RELATION_SAME, _, _, _):  decide(outcome_t.PASSED_DOWN, LANES_NONE,      SLOT_RELEASE, TO_GROUP,  KIND_RESULT);
#else
            (KIND_RESULT,   _, _,    RELATION_SAME, _, _, _):  decide(outcome_t.STORED,      LANES_OVERWRITE, SLOT_STORE,   TO_GROUP,  KIND_RESULT);
#endif
            (KIND_RESULT,   _, _,    _,             _, _, _):  decide(outcome_t.PASSED_DOWN, LANES_NONE,      SLOT_KEEP,    TO_GROUP,  KIND_RESULT);
            // raw values are never in a slot
            (KIND_REMINDER, 1, _,    _,             _, _, _):  decide(outcome_t.PASSED_DOWN, LANES_NONE,      SLOT_KEEP,    TO_GROUP,  KIND_REMINDER);
            // a reminder gets the result or the slot's part of the sum, else it goes further down. A result
            // without lanes, for others than the server, does not answer it; the slot is freed for the
            // contributions that will come up
            (KIND_REMINDER, _, true, RELATION_SAME, 1, 1, 0):  decide(outcome_t.PASSED_DOWN, LANES_NONE,      SLOT_RELEASE, TO_GROUP,  KIND_REMINDER);
            (KIND_REMINDER, _, true, RELATION_SAME, 1, _, _):  decide(outcome_t.PULLED,      LANES_FETCH,     SLOT_KEEP,    TO_UPLINK, KIND_RESULT);
            (KIND_REMINDER, _, true, RELATION_SAME, 0, _, _):  decide(outcome_t.PULLED,      LANES_FETCH,     SLOT_RELEASE, TO_UPLINK, KIND_PARTIAL);
            (KIND_REMINDER, _, _,    _,             _, _, _):  decide(outcome_t.PASSED_DOWN, LANES_NONE,      SLOT_KEEP,    TO_GROUP,  KIND_REMINDER);
        }
    }

    apply {
        addressing.apply(hdr, meta);
        if (meta.region_size != 0) {
            meet();
            eviction.apply(hdr.ina, meta, slot, now, aged, outranks);
        }
        if (meta.from_above == 1) {
            order.apply();
            if (meta.outcome == outcome_t.PULLED) {
                take_out();
            }
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

        if (slot_operation == SLOT_JOIN) {
            hold(hdr.ina.bitmap, full == 0 ? 0 : (meta.root == 0 ? DONE_BELOW : DONE_AT_ROOT));
        } else if (slot_operation == SLOT_CLAIM) {
            claim();
            hold(hdr.ina.bitmap, 0);
            if (meta.outcome != outcome_t.AGGREGATED) {     // another sum was evicted
                meta.evicted = 1;
                take_out();
            }
        } else if (slot_operation == SLOT_RELEASE) {
            release();
        } else if (slot_operation == SLOT_STORE) {
            hold(meta.full_bitmap, SLOT_FULL | SLOT_FINAL);
        } else {
            // A contribution that no slot holds keeps its sender's requests.
            if (meta.way == TO_UPLINK) {
                hdr.ina.flags = hdr.ina.flags | asked;
            }
            if (slot_operation == SLOT_AGE) {
                hdr.ina.flags = hdr.ina.flags | FLAG_COLLISION;
                age();
            }
        }
    }
}

#endif
