// What happens to the lanes of a packet and of its slot, where either may have none.
//
// A contribution without lanes adds nothing: it is that of a rank from which the sum gets no
// values, as from all ranks but one in a broadcast. A slot that only such contributions have
// joined is bare: what its lanes hold is older. So a sum has lanes if one of its contributions
// has.
#ifndef INA_LANE_WORK_P4
#define INA_LANE_WORK_P4

#include "headers.p4"

// Of a slot's flags, one that no packet carries.
const bit<8> SLOT_BARE = 0x40;

control LaneWork(in headers_t hdr, inout metadata_t meta) {
    // The operation, whether the packet leaves with lanes, and whether the slot is bare then.
    action work(bit<3> operation, bit<1> with_lanes, bit<1> bare) {
        meta.lane_operation = operation;
        meta.bare = bare;
        meta.leaves_with_lanes = with_lanes;
    }

    action keep() {
        meta.leaves_with_lanes = hdr.lanes.isValid() ? 1w1 : 1w0;
    }

    table lane_work {
        key = {
            meta.lane_operation: ternary;
            hdr.lanes.isValid(): ternary @name("has_lanes");
            meta.bare:           ternary;
            meta.way:            ternary;
        }
        actions = { work; keep; }
        const default_action = keep;
        const entries = {
            // operation, has_lanes, bare, way
            (LANES_OVERWRITE, true,  _, _):         work(LANES_OVERWRITE, 1, 0);
            (LANES_OVERWRITE, false, _, _):         work(LANES_NONE,      0, 1);
            (LANES_ADD,       true,  0, _):         work(LANES_ADD,       1, 0);
            (LANES_ADD,       true,  1, _):         work(LANES_OVERWRITE, 1, 0);
            (LANES_ADD,       false, 0, TO_NOBODY): work(LANES_NONE,      0, 0);
            (LANES_ADD,       false, 0, _):         work(LANES_FETCH,     1, 0);
            (LANES_ADD,       false, 1, _):         work(LANES_NONE,      0, 1);
            (LANES_FETCH,     _,     0, _):         work(LANES_FETCH,     1, 0);
            (LANES_FETCH,     _,     1, _):         work(LANES_NONE,      0, 1);
            // the packet's lanes in, those of the sum that has to make room out
            (LANES_EXCHANGE,  true,  0, _):         work(LANES_EXCHANGE,  1, 0);
            (LANES_EXCHANGE,  true,  1, _):         work(LANES_OVERWRITE, 0, 0);
            (LANES_EXCHANGE,  false, 0, _):         work(LANES_FETCH,     1, 1);
            (LANES_EXCHANGE,  false, 1, _):         work(LANES_NONE,      0, 1);
        }
    }

    apply {
        lane_work.apply();
    }
}

#endif
