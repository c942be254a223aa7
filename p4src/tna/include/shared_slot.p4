// One slot of the shared program: its owner, its contributors, the sum.
#ifndef INA_TNA_SLOT_P4
#define INA_TNA_SLOT_P4

#include "admission.p4"
#include "lanes.p4"

// A slot's loss of strength per packet of a job that may preempt. A contribution to the slot also
// causes this loss, and the next one makes up for it.
#ifndef AGEING
#define AGEING 1
#endif

// The strength of a packet that may take only an empty slot; with a priority, strengths are larger.
const bit<16> STRENGTH_WITHOUT_PRIORITY = 1;

struct tna_metadata_t {
    bit<1>  bad_checksum;
    // From the job's entry (member).
    bit<8>  counter_row;
    bit<16> position;       // in the region
    bit<16> place;          // start of the region, and the rotation of its positions
    bit<32> others;         // all contributors except this one
    bit<16> strength;
    bit<1>  preempt;
    bit<1>  root;
    bit<32> owner;          // job and epoch
    // This packet's slot.
    index_t index;
    bit<1>  outranks;       // the slot is weaker
    bit<32> other_psn;      // these four: 0 if slot and packet have equal values, else their XOR
    bit<32> other_owner;
    bit<32> other_tag;
    bit<32> other_target;
    bit<2>  meeting;        // MEETS_*
    bit<32> before;         // contributors in the slot before this packet
    bit<32> seen;           // this contributor's bit, if it is among them
    bit<32> lacking;        // contributors missing, after this packet
    bit<8>  flags;
    bit<1>  frees;          // the slot is empty after this packet
    // The packet's outcome.
    outcome_t outcome;
    bit<2>  way;            // TO_*
}

// The multicast group of the port that leads back into this pipeline.
const bit<16> GROUP_OF_SELF = 0xffff;

// A word of the slot's identity. A packet that outranks the slot stores its own; in both cases the
// packet gets the XOR of the two words, which shows if they are equal.
control Word(in bit<32> mine, in index_t index, in bit<1> outranks, out bit<32> difference) {
    Register<bit<32>, index_t>(SLOTS) words;
    RegisterAction<bit<32>, index_t, bit<32>>(words) comparing = {
        void apply(inout bit<32> word, out bit<32> result) {
            bit<32> differs = word ^ mine;
            result = differs;
        }
    };
    RegisterAction<bit<32>, index_t, bit<32>>(words) taking = {
        void apply(inout bit<32> word, out bit<32> result) {
            bit<32> differs = word ^ mine;
            word = mine;
            result = differs;
        }
    };

    action compare() { difference = comparing.execute(index); }
    action take()    { difference = taking.execute(index); }

    table word {
        key = { outranks: exact; }
        actions = { compare; take; NoAction; }
        const default_action = NoAction;
        size = 2;
        const entries = {
            0: compare();
            1: take();
        }
    }

    apply {
        word.apply();
    }
}

control Slot(inout tna_headers_t hdr, inout tna_metadata_t meta) {
    Hash<index_t>(HashAlgorithm_t.XOR16) addressing;
    bit<8> asked = 0;       // the packet's flags on arrival

    // 0: free. A job without preemption takes only a free slot, and sets it to 1.
    Register<bit<16>, index_t>(SLOTS) slot_strength;
    RegisterAction<bit<16>, index_t, bit<1>>(slot_strength) claiming = {
        void apply(inout bit<16> strength, out bit<1> outranks) {
            if (meta.strength > strength) {
                strength = meta.strength;
                outranks = 1;
            } else {
                outranks = 0;
            }
        }
    };
    RegisterAction<bit<16>, index_t, bit<1>>(slot_strength) contending = {
        void apply(inout bit<16> strength, out bit<1> outranks) {
            if (meta.strength > strength) {
                strength = meta.strength;
                outranks = 1;
            } else {
                strength = strength |-| AGEING;
                outranks = 0;
            }
        }
    };
    RegisterAction<bit<16>, index_t, bit<1>>(slot_strength) releasing = {
        void apply(inout bit<16> strength) {
            strength = 0;
        }
    };

    action claim()   { meta.outranks = claiming.execute(ADDRESS); }
    action contend() { meta.outranks = contending.execute(ADDRESS); }
    action release() { releasing.execute(ADDRESS); }

    table strength {
        key = {
            hdr.ina.kind:       ternary;
            hdr.ina.flags[0:0]: ternary @name("resend");
            hdr.ina.flags[6:6]: ternary @name("bypass");
            hdr.ina.flags[7:7]: ternary @name("raw");
            meta.preempt:       ternary;
        }
        actions = { claim; contend; release; NoAction; }
        const default_action = NoAction;
        size = 3;
        const entries = {
            // kind, resend, bypass, raw, preempt
            (KIND_RELEASE,  _, _, _, _): release();
            (KIND_GRADIENT, 0, 0, 0, 0): claim();
            (KIND_GRADIENT, 0, 0, 0, 1): contend();
        }
    }

    // A different tag makes another sum: the fallback server then detects that ranks disagree.
    Word() psn;
    Word() owner;
    Word() tag;
    Word() target;

    // The slot's contributors. A complete sum, or one that is taken out, leaves it empty.
    // An ALU outputs one word, but two are needed: the bitmap is stored twice.
    Register<bit<32>, index_t>(SLOTS) slot_bitmap;
    RegisterAction<bit<32>, index_t, bit<32>>(slot_bitmap) joining = {
        void apply(inout bit<32> bitmap, out bit<32> before) {
            before = bitmap;
            if (bitmap == meta.others) {
                bitmap = 0;
            } else {
                bitmap = bitmap | hdr.ina.bitmap;
            }
        }
    };
    // A resend joins a sum in the slot, but never starts one: no other contribution may follow.
    RegisterAction<bit<32>, index_t, bit<32>>(slot_bitmap) following = {
        void apply(inout bit<32> bitmap, out bit<32> before) {
            before = bitmap;
            if (bitmap == meta.others) {
                bitmap = 0;
            } else if (bitmap != 0) {
                bitmap = bitmap | hdr.ina.bitmap;
            }
        }
    };
    RegisterAction<bit<32>, index_t, bit<32>>(slot_bitmap) emptying = {
        void apply(inout bit<32> bitmap, out bit<32> before) {
            before = bitmap;
            bitmap = 0;
        }
    };
    RegisterAction<bit<32>, index_t, bit<32>>(slot_bitmap) beginning = {
        void apply(inout bit<32> bitmap, out bit<32> before) {
            before = bitmap;
            bitmap = hdr.ina.bitmap;
        }
    };

    Register<bit<32>, index_t>(SLOTS) slot_seen;
    RegisterAction<bit<32>, index_t, bit<32>>(slot_seen) joining_too = {
        void apply(inout bit<32> bitmap, out bit<32> seen) {
            bit<32> mine = bitmap & hdr.ina.bitmap;
            if (bitmap == meta.others) {
                bitmap = 0;
            } else {
                bitmap = bitmap | hdr.ina.bitmap;
            }
            seen = mine;
        }
    };
    RegisterAction<bit<32>, index_t, bit<32>>(slot_seen) following_too = {
        void apply(inout bit<32> bitmap, out bit<32> seen) {
            bit<32> mine = bitmap & hdr.ina.bitmap;
            if (bitmap == meta.others) {
                bitmap = 0;
            } else if (bitmap != 0) {
                bitmap = bitmap | hdr.ina.bitmap;
            }
            seen = mine;
        }
    };
    RegisterAction<bit<32>, index_t, bit<32>>(slot_seen) emptying_too = {
        void apply(inout bit<32> bitmap, out bit<32> seen) {
            bit<32> mine = bitmap & hdr.ina.bitmap;
            bitmap = 0;
            seen = mine;
        }
    };
    RegisterAction<bit<32>, index_t, bit<32>>(slot_seen) beginning_too = {
        void apply(inout bit<32> bitmap) {
            bitmap = hdr.ina.bitmap;
        }
    };

    action join()       { meta.before = joining.execute(meta.index); }
    action follow()     { meta.before = following.execute(meta.index); }
    action empty()      { meta.before = emptying.execute(meta.index); }
    action begin()      { meta.before = beginning.execute(meta.index); }
    action join_too()   { meta.seen = joining_too.execute(meta.index); }
    action follow_too() { meta.seen = following_too.execute(meta.index); }
    action empty_too()  { meta.seen = emptying_too.execute(meta.index); }
    action begin_too()  { beginning_too.execute(meta.index); }

// Below, the first matching row applies. A resend takes the slot's sum along, as other contributions may
// be lost, unless it asks for the status; results and reminders have no tag to compare.
#define BY_IDENTITY                                     \
    hdr.ina.kind:       ternary;                        \
    hdr.ina.flags[7:6]: ternary @name("raw_bypass");    \
    hdr.ina.flags[1:0]: ternary @name("query_resend");  \
    meta.other_psn:     ternary;                        \
    meta.other_owner:   ternary;                        \
    meta.other_tag:     ternary;                        \
    meta.outranks:      ternary;
#define ROWS(flushed, asked, same, other, result, reminder) \
    (KIND_GRADIENT, 2 &&& 2, _, _, _, _, _): NoAction(); \
    (KIND_GRADIENT, _, 1, 0, 0, 0, _): flushed();       \
    (KIND_GRADIENT, _, 3, 0, 0, 0, _): asked();         \
    (KIND_GRADIENT, _, _, 0, 0, 0, _): same();          \
    (KIND_GRADIENT, _, _, _, _, _, 1): other();         \
    (KIND_RESULT,   _, _, 0, 0, _, _): result();        \
    (KIND_REMINDER, 0 &&& 2, _, 0, 0, _, _): reminder();

    table bitmap {
        key = { BY_IDENTITY }
        actions = { join; follow; empty; begin; NoAction; }
        const default_action = NoAction;
        size = 7;
        const entries = { ROWS(empty, follow, join, begin, empty, empty) }
    }

    table seen {
        key = { BY_IDENTITY }
        actions = { join_too; follow_too; empty_too; begin_too; NoAction; }
        const default_action = NoAction;
        size = 7;
        const entries = { ROWS(empty_too, follow_too, join_too, begin_too, empty_too, empty_too) }
    }

    // The largest exponent of any contributor. A repeated contribution does not change it.
    Register<bit<8>, index_t>(SLOTS) slot_exponent;
    RegisterAction<bit<8>, index_t, bit<8>>(slot_exponent) raising = {
        void apply(inout bit<8> exponent, out bit<8> largest) {
            exponent = max(exponent, hdr.ina.exponent);
            largest = exponent;
        }
    };
    RegisterAction<bit<8>, index_t, bit<8>>(slot_exponent) exchanging = {
        void apply(inout bit<8> exponent, out bit<8> before) {
            before = exponent;
            exponent = hdr.ina.exponent;
        }
    };

    action raise()    { hdr.ina.exponent = raising.execute(meta.index); }
    action exchange() { hdr.ina.exponent = exchanging.execute(meta.index); }

    table exponent {
        key = { BY_IDENTITY }
        actions = { raise; exchange; NoAction; }
        const default_action = NoAction;
        size = 7;
        const entries = { ROWS(raise, raise, raise, exchange, NoAction, raise) }
    }

    // FLAGS_OF_SUM of all contributions, and a flag if another sum wanted the slot.
    Register<bit<8>, index_t>(SLOTS) slot_flags;
    RegisterAction<bit<8>, index_t, bit<8>>(slot_flags) adding = {
        void apply(inout bit<8> flags, out bit<8> all) {
            flags = flags | meta.flags;
            all = flags;
        }
    };
    RegisterAction<bit<8>, index_t, bit<8>>(slot_flags) swapping = {
        void apply(inout bit<8> flags, out bit<8> before) {
            before = flags;
            flags = meta.flags;
        }
    };
    RegisterAction<bit<8>, index_t, bit<8>>(slot_flags) marking = {
        void apply(inout bit<8> flags) {
            flags = flags | FLAG_COLLISION;
        }
    };

    action add()  { meta.flags = adding.execute(meta.index); }
    action swap() { meta.flags = swapping.execute(meta.index); }
    action mark() { marking.execute(meta.index); }

    table flags {
        key = { BY_IDENTITY }
        actions = { add; swap; mark; NoAction; }
        const default_action = NoAction;
        size = 8;
        const entries = {
            ROWS(add, add, add, swap, NoAction, add)
            (KIND_GRADIENT, 0, 0 &&& 1, _, _, _, _): mark();
        }
    }

    action meet_own()       { meta.meeting = MEETS_OWN; }
    action meet_other()     { meta.meeting = MEETS_OTHER; }
    action meet_to_read()   { meta.meeting = MEETS_TO_READ; }
    action free()           { meta.frees = 1; }     // a result from above completes the slot's sum

    table meeting {
        key = { BY_IDENTITY }
        actions = { meet_own; meet_other; meet_to_read; free; NoAction; }
        const default_action = NoAction;
        size = 7;
        const entries = { ROWS(meet_own, meet_own, meet_own, meet_other, free, meet_to_read) }
    }

    Lanes() lanes;

    // From here on the header has the slot's values including this contribution.
    action tell_own() {
        hdr.ina.bitmap = hdr.ina.bitmap | meta.before;
        meta.lacking = meta.others ^ meta.before;
        hdr.ina.flags = meta.flags;
    }

    // No change: a resend is forwarded as it came.
    action tell_alone() {
        meta.lacking = meta.others;
    }

    // The slot's sum leaves in this packet.
    action tell_other() {
        hdr.ina.psn = hdr.ina.psn ^ meta.other_psn;
        hdr.ina.job = hdr.ina.job ^ meta.other_owner[31:16];
        hdr.ina.epoch = hdr.ina.epoch ^ meta.other_owner[15:8];
        hdr.ina.tag = hdr.ina.tag ^ meta.other_tag;
        hdr.ina.target = hdr.ina.target ^ meta.other_target[15:0];
        hdr.ina.bitmap = meta.before;
        hdr.ina.flags = meta.flags;
        hdr.ina.valid = LANES;
    }

    // A reminder takes out the slot's sum.
    action tell_reader() {
        hdr.ina.bitmap = meta.before;
        hdr.ina.tag = hdr.ina.tag ^ meta.other_tag;
        hdr.ina.target = hdr.ina.target ^ meta.other_target[15:0];
        hdr.ina.flags = meta.flags;
        hdr.ina.valid = LANES;
        hdr.ina.lanes = LANES;
        hdr.lanes.setValid();
        hdr.udp.length = BYTES_BEHIND_IPV4 + LANE_BYTES;
        hdr.ipv4.total_len = IPV4_BYTES + BYTES_BEHIND_IPV4 + LANE_BYTES;
    }

    table telling {
        key = { hdr.ina.kind: ternary; meta.meeting: exact; meta.before: ternary; }
        actions = { tell_own; tell_alone; tell_other; tell_reader; NoAction; }
        const default_action = NoAction;
        size = 5;
        const entries = {
            (KIND_GRADIENT, MEETS_OWN,     0): tell_alone();
            (KIND_GRADIENT, MEETS_OWN,     _): tell_own();
            (KIND_GRADIENT, MEETS_OTHER,   _): tell_other();
            (KIND_REMINDER, MEETS_TO_READ, 0): NoAction();
            (KIND_REMINDER, MEETS_TO_READ, _): tell_reader();
        }
    }

    // A part of a sum names this node of its own job's tree.
    action set_node(bit<16> node, bit<8> fan_in) {
        hdr.ina.node = node;
        hdr.ina.fan_in = fan_in;
    }

    table part {
        key = { hdr.ina.job: exact; }
        actions = { set_node; NoAction; }
        const default_action = NoAction;
        size = JOB_ROWS;
    }

    action leave(outcome_t outcome, bit<2> way, bit<4> kind) {
        meta.outcome = outcome;
        meta.way = way;
        hdr.ina.kind = kind;
        meta.frees = 1;
    }

    action decide(outcome_t outcome, bit<2> way, bit<4> kind) {
        meta.outcome = outcome;
        meta.way = way;
        hdr.ina.kind = kind;
    }

    action collide() {
        decide(outcome_t.COLLIDED, TO_UPLINK, KIND_PARTIAL);
        hdr.ina.flags = hdr.ina.flags | FLAG_COLLISION;
    }

    // docs/reference/protocol/shared.md, slots of the shared mode.
    table decision {
        key = {
            hdr.ina.kind:    ternary;
            meta.meeting:    ternary;
            meta.before:     ternary;
            meta.seen:       ternary;
            meta.lacking:    ternary;
            asked[0:0]:      ternary @name("resend");
            asked[1:1]:      ternary @name("query");
            asked[6:6]:      ternary @name("bypass");
            asked[7:7]:      ternary @name("raw");
            meta.root:       ternary;
        }
        actions = { decide; leave; collide; }
        const default_action = decide(outcome_t.WRONG_DIRECTION, TO_NOBODY, 0);
        size = 18;
        const entries = {
            // kind, meeting, before, seen, lacking, resend, query, bypass, raw, root
            // the last contribution: the sum leaves, and the slot's owner with it
            (KIND_GRADIENT, MEETS_OWN,     _, _, 0, _, _, _, _, 1): leave(outcome_t.COMPLETED,    TO_GROUP,  KIND_RESULT);
            (KIND_GRADIENT, MEETS_OWN,     _, _, 0, _, _, _, _, 0): leave(outcome_t.COMPLETED,    TO_UPLINK, KIND_GRADIENT);
            // a resend takes the slot's sum along
            (KIND_GRADIENT, MEETS_OWN,     _, _, _, 1, 0, _, _, _): leave(outcome_t.FLUSHED,      TO_UPLINK, KIND_PARTIAL);
            (KIND_GRADIENT, MEETS_OWN,     0, _, _, 1, _, _, _, _): decide(outcome_t.BYPASSED,    TO_UPLINK, KIND_PARTIAL);
            // one more; or already counted: send a status, or nothing
            (KIND_GRADIENT, MEETS_OWN,     _, 0, _, _, _, _, _, _): decide(outcome_t.AGGREGATED,  TO_NOBODY, 0);
            (KIND_GRADIENT, MEETS_OWN,     _, _, _, _, 1, _, _, _): decide(outcome_t.STATUS,      TO_SENDER, KIND_STATUS);
            (KIND_GRADIENT, MEETS_OWN,     _, _, _, _, _, _, _, _): decide(outcome_t.DUPLICATE,   TO_NOBODY, 0);
            // first contribution, which may evict another sum
            (KIND_GRADIENT, MEETS_OTHER,   0, _, _, _, _, _, _, _): decide(outcome_t.AGGREGATED,  TO_NOBODY, 0);
            (KIND_GRADIENT, MEETS_OTHER,   _, _, _, _, _, _, _, _): decide(outcome_t.PREEMPTED,   TO_UPLINK, KIND_PARTIAL);
            // the packet must not take a slot, or could not
            (KIND_GRADIENT, _,             _, _, _, _, _, _, 1, _): decide(outcome_t.BYPASSED,    TO_UPLINK, KIND_PARTIAL);
            (KIND_GRADIENT, _,             _, _, _, 1, _, _, _, _): decide(outcome_t.BYPASSED,    TO_UPLINK, KIND_PARTIAL);
            (KIND_GRADIENT, _,             _, _, _, _, _, 1, _, _): decide(outcome_t.BYPASSED,    TO_UPLINK, KIND_PARTIAL);
            (KIND_GRADIENT, _,             _, _, _, _, _, _, _, _): collide();
            // a reminder gets the slot's part of the sum, else it goes further down
            (KIND_REMINDER, MEETS_TO_READ, 0, _, _, _, _, _, _, _): decide(outcome_t.PASSED_DOWN, TO_GROUP,  KIND_REMINDER);
            (KIND_REMINDER, MEETS_TO_READ, _, _, _, _, _, _, _, _): leave(outcome_t.PULLED,       TO_UPLINK, KIND_PARTIAL);
            (KIND_REMINDER, _,             _, _, _, _, _, _, _, _): decide(outcome_t.PASSED_DOWN, TO_GROUP,  KIND_REMINDER);
            (KIND_RESULT,   _,             _, _, _, _, _, _, _, _): decide(outcome_t.PASSED_DOWN, TO_GROUP,  KIND_RESULT);
            (KIND_RELEASE,  _,             _, _, _, _, _, _, _, _): decide(outcome_t.PASSED_DOWN, TO_NOBODY, KIND_RELEASE);
        }
    }

    apply {
        asked = hdr.ina.flags;
        meta.index = ADDRESS;
        strength.apply();
        psn.apply(hdr.ina.psn, meta.index, meta.outranks, meta.other_psn);
        owner.apply(meta.owner, meta.index, meta.outranks, meta.other_owner);
        tag.apply(hdr.ina.tag, meta.index, meta.outranks, meta.other_tag);
        target.apply((bit<32>)hdr.ina.target, meta.index, meta.outranks, meta.other_target);
        bitmap.apply();
        seen.apply();
        exponent.apply();
        flags.apply();
        meeting.apply();
        lanes.apply(hdr.lanes, meta.index, meta.meeting, meta.before, meta.seen);
        telling.apply();
        decision.apply();
        if (meta.outcome == outcome_t.PREEMPTED || meta.outcome == outcome_t.PULLED) {
            part.apply();
        }
    }
}

#endif
