// One slot of the exclusive program: its PSN, its contributors, the sum.
#ifndef INA_TNA_SLOT_P4
#define INA_TNA_SLOT_P4

#include "admission.p4"
#include "lanes.p4"

// The relation of a packet's PSN to its slot's.
typedef bit<8> relation_t;
const relation_t OLDER = 0;
const relation_t SAME = 1;
const relation_t NEWER = 2;

struct tna_metadata_t {
    bit<1>  bad_checksum;
    // From the job's entry (member).
    bit<8>  counter_row;
    bit<16> position;       // in the region
    bit<16> place;          // start of the region
    bit<32> full_bitmap;
    bit<1>  root;
    // This packet's slot.
    index_t index;
    bit<2>  meeting;        // MEETS_*
    bit<32> before;         // contributors in the slot before this packet
    bit<32> seen;           // this contributor's bit, if it is among them
    bit<32> lacking;        // contributors missing, after this packet
    bit<32> flags;          // FLAGS_OF_RESULT, SLOT_FINAL
    // The packet's outcome.
    outcome_t outcome;
    bit<2>  way;            // TO_*
}

// A flag of slots that no packet carries.
const bit<32> SLOT_FINAL = 0x01;    // the lanes hold the job's result

struct agreement_t {
    bit<32> tag;
    bit<32> flags;
}

control Slot(inout tna_headers_t hdr, inout tna_metadata_t meta) {
    relation_t relation = OLDER;

    Hash<index_t>(HashAlgorithm_t.XOR16) addressing;

    // No sender's window exceeds half the region: the sender of a newer PSN has the result of the older
    // one. The difference is one of serial numbers (RFC 1982). The control plane writes -1 to a
    // region's slots before it gives the region to a job, as a job's first PSN is 0.
    Register<bit<32>, index_t>(SLOTS, 0xffffffff) slot_psn;
    RegisterAction<bit<32>, index_t, relation_t>(slot_psn) entering = {
        void apply(inout bit<32> psn, out relation_t answer) {
            if (psn == hdr.ina.psn) {
                answer = SAME;
            } else if ((int<32>)(psn - hdr.ina.psn) < 0) {
                answer = NEWER;
                psn = hdr.ina.psn;
            } else {
                answer = OLDER;
            }
        }
    };
    RegisterAction<bit<32>, index_t, relation_t>(slot_psn) looking = {
        void apply(inout bit<32> psn, out relation_t answer) {
            if (psn == hdr.ina.psn) {
                answer = SAME;
            } else if ((int<32>)(psn - hdr.ina.psn) < 0) {
                answer = NEWER;
            } else {
                answer = OLDER;
            }
        }
    };

    action enter() { relation = entering.execute(ADDRESS); }
    action look()  { relation = looking.execute(ADDRESS); }

    // A result from above finds its own sum, or claims no slot.
    table psn {
        key = { hdr.ina.kind: exact; }
        actions = { enter; look; NoAction; }
        const default_action = NoAction;
        size = 2;
        const entries = {
            KIND_GRADIENT: enter();
            KIND_RESULT:   look();
        }
    }

    // An ALU outputs one word, but two are needed: the bitmap, and this contributor's bit in it. So
    // the bitmap is stored twice.
    Register<bit<32>, index_t>(SLOTS) slot_bitmap;
    RegisterAction<bit<32>, index_t, bit<32>>(slot_bitmap) joining = {
        void apply(inout bit<32> bitmap, out bit<32> before) {
            before = bitmap;
            bitmap = bitmap | hdr.ina.bitmap;
        }
    };
    RegisterAction<bit<32>, index_t, bit<32>>(slot_bitmap) beginning = {
        void apply(inout bit<32> bitmap) {
            bitmap = hdr.ina.bitmap;
        }
    };

    // A result from above: it has all contributors.
    RegisterAction<bit<32>, index_t, bit<32>>(slot_bitmap) closing = {
        void apply(inout bit<32> bitmap) {
            bitmap = meta.full_bitmap;
        }
    };

    Register<bit<32>, index_t>(SLOTS) slot_seen;
    RegisterAction<bit<32>, index_t, bit<32>>(slot_seen) joining_too = {
        void apply(inout bit<32> bitmap, out bit<32> seen) {
            bit<32> mine = bitmap & hdr.ina.bitmap;
            bitmap = bitmap | hdr.ina.bitmap;
            seen = mine;
        }
    };
    RegisterAction<bit<32>, index_t, bit<32>>(slot_seen) beginning_too = {
        void apply(inout bit<32> bitmap) {
            bitmap = hdr.ina.bitmap;
        }
    };
    RegisterAction<bit<32>, index_t, bit<32>>(slot_seen) closing_too = {
        void apply(inout bit<32> bitmap) {
            bitmap = meta.full_bitmap;
        }
    };

    action join()      { meta.before = joining.execute(meta.index); }
    action begin()     { beginning.execute(meta.index); }
    action close()     { closing.execute(meta.index); }
    action join_too()  { meta.seen = joining_too.execute(meta.index); }
    action begin_too() { beginning_too.execute(meta.index); }
    action close_too() { closing_too.execute(meta.index); }

    table bitmap {
        key = { hdr.ina.kind: exact; relation: exact; }
        actions = { join; begin; close; NoAction; }
        const default_action = NoAction;
        size = 3;
        const entries = {
            (KIND_GRADIENT, SAME):  join();
            (KIND_GRADIENT, NEWER): begin();
            (KIND_RESULT,   SAME):  close();
        }
    }

    table seen {
        key = { hdr.ina.kind: exact; relation: exact; }
        actions = { join_too; begin_too; close_too; NoAction; }
        const default_action = NoAction;
        size = 3;
        const entries = {
            (KIND_GRADIENT, SAME):  join_too();
            (KIND_GRADIENT, NEWER): begin_too();
            (KIND_RESULT,   SAME):  close_too();
        }
    }

    // The largest exponent of any contributor. A repeated contribution does not change it.
    Register<bit<8>, index_t>(SLOTS) slot_exponent;
    RegisterAction<bit<8>, index_t, bit<8>>(slot_exponent) raising = {
        void apply(inout bit<8> exponent, out bit<8> largest) {
            exponent = max(exponent, hdr.ina.exponent);
            largest = exponent;
        }
    };
    RegisterAction<bit<8>, index_t, bit<8>>(slot_exponent) setting = {
        void apply(inout bit<8> exponent) {
            exponent = hdr.ina.exponent;
        }
    };

    action raise() { hdr.ina.exponent = raising.execute(meta.index); }
    action set()   { setting.execute(meta.index); }

    table exponent {
        key = { hdr.ina.kind: exact; relation: exact; }
        actions = { raise; set; NoAction; }
        const default_action = NoAction;
        size = 3;
        const entries = {
            (KIND_GRADIENT, SAME):  raise();
            (KIND_GRADIENT, NEWER): set();
            (KIND_RESULT,   SAME):  set();
        }
    }

    // Flags are collected; a different tag sets one more. Its sender's own flags are then lost, but
    // the receiver of DISAGREE has an error anyway.
    Register<agreement_t, index_t>(SLOTS) slot_agreement;
    RegisterAction<agreement_t, index_t, bit<32>>(slot_agreement) agreeing = {
        void apply(inout agreement_t slot, out bit<32> flags) {
            if (slot.tag != hdr.ina.tag) {
                slot.flags = slot.flags | (bit<32>)FLAG_DISAGREE;
            } else {
                slot.flags = slot.flags | meta.flags;
            }
            flags = slot.flags;
        }
    };
    RegisterAction<agreement_t, index_t, bit<32>>(slot_agreement) proposing = {
        void apply(inout agreement_t slot) {
            slot.tag = hdr.ina.tag;
            slot.flags = meta.flags;
        }
    };
    RegisterAction<agreement_t, index_t, bit<32>>(slot_agreement) storing = {
        void apply(inout agreement_t slot, out bit<32> flags) {
            flags = slot.flags;
            slot.flags = meta.flags;
        }
    };

    action agree()   { meta.flags = agreeing.execute(meta.index); }
    action propose() { proposing.execute(meta.index); }
    action store()   { meta.flags = storing.execute(meta.index); }

    table agreement {
        key = { hdr.ina.kind: exact; relation: exact; }
        actions = { agree; propose; store; NoAction; }
        const default_action = NoAction;
        size = 3;
        const entries = {
            (KIND_GRADIENT, SAME):  agree();
            (KIND_GRADIENT, NEWER): propose();
            (KIND_RESULT,   SAME):  store();
        }
    }

    // In an empty slot lanes are overwritten: by the first contribution to a newer sum, and by a
    // result in the place of this node's sum.
    action meet() { meta.meeting = MEETS_OWN; }

    table meeting {
        key = { hdr.ina.kind: exact; hdr.lanes.isValid(): exact; relation: exact; }
        actions = { meet; NoAction; }
        const default_action = NoAction;
        size = 3;
        const entries = {
            (KIND_GRADIENT, true, SAME):  meet();
            (KIND_GRADIENT, true, NEWER): meet();
            (KIND_RESULT,   true, SAME):  meet();
        }
    }

    Lanes() lanes;

    action decide(outcome_t outcome, bit<2> way, bit<4> kind) {
        meta.outcome = outcome;
        meta.way = way;
        hdr.ina.kind = kind;
        hdr.ina.flags = meta.flags[7:0] & FLAGS_OF_RESULT;
    }

    action pass(outcome_t outcome, bit<2> way) {
        meta.outcome = outcome;
        meta.way = way;
    }

    // A sum without an answer goes up again, with its sender's requests.
    action relay() {
        meta.outcome = outcome_t.RELAYED;
        meta.way = TO_UPLINK;
        hdr.ina.flags = hdr.ina.flags | meta.flags[7:0];
    }

    // docs/reference/protocol/switch.md, slots of the exclusive mode. The first matching row applies.
    table decision {
        key = {
            hdr.ina.kind:       ternary;
            relation:           ternary;
            meta.flags[0:0]:    ternary @name("final");
            meta.seen:          ternary;
            meta.lacking:       ternary;
            hdr.ina.flags[1:1]: ternary @name("query");
            meta.root:          ternary;
        }
        actions = { decide; pass; relay; }
        const default_action = pass(outcome_t.WRONG_DIRECTION, TO_NOBODY);
        size = 13;
        const entries = {
            // kind, relation, final, seen, lacking, query, root
            // a late copy of a PSN whose slot has moved on
            (KIND_GRADIENT, OLDER, _, _, _, _, _): pass(outcome_t.STALE,        TO_NOBODY);
            // one more contribution; the last one completes the sum
            (KIND_GRADIENT, _,                _, 0, 0, _, 1): decide(outcome_t.COMPLETED,  TO_GROUP,  KIND_RESULT);
            (KIND_GRADIENT, _,                _, 0, 0, _, 0): decide(outcome_t.COMPLETED,  TO_UPLINK, KIND_GRADIENT);
            (KIND_GRADIENT, _,                _, 0, _, _, _): pass(outcome_t.AGGREGATED,   TO_NOBODY);
            // already counted: send the result again, the sum up again, a status, or nothing
            (KIND_GRADIENT, _,                _, _, 0, _, 1): decide(outcome_t.REPLAYED,   TO_SENDER, KIND_RESULT);
            (KIND_GRADIENT, _,                1, _, _, _, 0): decide(outcome_t.REPLAYED,   TO_SENDER, KIND_RESULT);
            (KIND_GRADIENT, _,                0, _, 0, _, 0): relay();
            (KIND_GRADIENT, _,                _, _, _, 1, _): decide(outcome_t.STATUS,     TO_SENDER, KIND_STATUS);
            (KIND_GRADIENT, _,                _, _, _, _, _): pass(outcome_t.DUPLICATE,    TO_NOBODY);
            // a result from above: kept for children that lose it, or only passed on
            (KIND_RESULT,   OLDER, _, _, _, _, _): pass(outcome_t.STALE,        TO_NOBODY);
            (KIND_RESULT,   SAME,  1, _, _, _, _): pass(outcome_t.DUPLICATE,    TO_NOBODY);
            (KIND_RESULT,   SAME,  0, _, _, _, _): pass(outcome_t.STORED,       TO_GROUP);
            (KIND_RESULT,   _,                _, _, _, _, _): pass(outcome_t.PASSED_DOWN,  TO_GROUP);
        }
    }

    apply {
        meta.index = ADDRESS;
        psn.apply();
        bitmap.apply();
        seen.apply();
        exponent.apply();
        agreement.apply();
        meeting.apply();
        lanes.apply(hdr.lanes, meta.index, meta.meeting, meta.before, meta.seen);
        if (hdr.ina.kind == KIND_GRADIENT) {
            hdr.ina.bitmap = hdr.ina.bitmap | meta.before;
            meta.lacking = hdr.ina.bitmap ^ meta.full_bitmap;
        }
        decision.apply();
    }
}

#endif
