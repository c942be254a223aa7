// The lanes of the slots. Each lane has a register of its own, and a packet meets it once: a
// stateful ALU reads, adds, writes and gives out one word. Sums saturate (docs/tofino.md).
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
            before:  ternary;   // who was in the slot
            seen:    ternary;   // this contributor, if it was
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

// P4 has no loops over registers: these write `each` for the lanes n to n + 7, and for all.
#define EIGHT(each, a, b, c, d, e, f, g, h) \
    each(a) each(b) each(c) each(d) each(e) each(f) each(g) each(h)
#define LANES_0_TO_31(each) \
    EIGHT(each, 0, 1, 2, 3, 4, 5, 6, 7) EIGHT(each, 8, 9, 10, 11, 12, 13, 14, 15) \
    EIGHT(each, 16, 17, 18, 19, 20, 21, 22, 23) EIGHT(each, 24, 25, 26, 27, 28, 29, 30, 31)
#define LANES_32_TO_63(each) \
    EIGHT(each, 32, 33, 34, 35, 36, 37, 38, 39) EIGHT(each, 40, 41, 42, 43, 44, 45, 46, 47) \
    EIGHT(each, 48, 49, 50, 51, 52, 53, 54, 55) EIGHT(each, 56, 57, 58, 59, 60, 61, 62, 63)
#if LANES == 32
#define EVERY_LANE(each) LANES_0_TO_31(each)
#elif LANES == 64
#define EVERY_LANE(each) LANES_0_TO_31(each) LANES_32_TO_63(each)
#else
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
