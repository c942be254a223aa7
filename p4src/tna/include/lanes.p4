// The lanes of the slots. Each lane has a register of its own, which a packet accesses once: a
// stateful ALU reads, adds, writes and outputs one word. Sums saturate (docs/reference/tofino.md).
#ifndef INA_TNA_LANES_P4
#define INA_TNA_LANES_P4

#include "config.p4"

control Lane(inout bit<32> value, in index_t index, in bit<2> meeting,
             in bit<32> before, in bit<32> seen) {
    Register<bit<32>, index_t>(SLOTS) sums;

    RegisterAction<bit<32>, index_t, bit<32>>(sums) overwriting = {
        void apply(inout bit<32> sum) {
            sum = value;
        }
    };
    RegisterAction<bit<32>, index_t, bit<32>>(sums) adding = {
        void apply(inout bit<32> sum, out bit<32> result) {
            sum = (bit<32>)((int<32>)sum |+| (int<32>)value);
            result = sum;
        }
    };
    RegisterAction<bit<32>, index_t, bit<32>>(sums) fetching = {
        void apply(inout bit<32> sum, out bit<32> result) {
            result = sum;
        }
    };
    RegisterAction<bit<32>, index_t, bit<32>>(sums) exchanging = {
        void apply(inout bit<32> sum, out bit<32> result) {
            result = sum;
            sum = value;
        }
    };

    action overwrite() { overwriting.execute(index); }
    action add()       { value = adding.execute(index); }
    action fetch()     { value = fetching.execute(index); }
    action exchange()  { value = exchanging.execute(index); }

    table lane {
        key = {
            meeting: ternary;
            before:  ternary;   // contributors in the slot
            seen:    ternary;   // this contributor's bit in it
        }
        actions = { overwrite; add; fetch; exchange; NoAction; }
        const default_action = NoAction;
        size = 5;
        const entries = {
            (MEETS_OWN,     0, _): overwrite();     // no clearing pass
            (MEETS_OWN,     _, 0): add();
            (MEETS_OWN,     _, _): fetch();
            (MEETS_OTHER,   _, _): exchange();
            (MEETS_TO_READ, _, _): fetch();
        }
    }

    apply {
        lane.apply();
    }
}

#if LANES > 64
#error "LANES must be 32 or 64"
#endif

control Lanes(inout lanes_t lanes, in index_t index, in bit<2> meeting,
              in bit<32> before, in bit<32> seen) {
#define DECLARE(i) Lane() lane_##i;
#define MEET(i)    lane_##i.apply(lanes.v##i, index, meeting, before, seen);
    EVERY_LANE(DECLARE)

    apply {
        EVERY_LANE(MEET)
    }
}

#endif
