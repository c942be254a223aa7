// The operation on the lanes of a packet and of its slot; either may have no lanes.
//
// A contribution without lanes adds no values to the sum: it comes from a rank that supplies none,
// such as all ranks except one in a broadcast. A slot with only such contributions is bare: the
// values in its lanes belong to an older sum. So a sum has lanes if one of its contributions has
// lanes.
#ifndef INA_LANE_WORK_P4
#define INA_LANE_WORK_P4

#include "headers.p4"

// A flag of slots that no packet carries.
const bit<8> SLOT_BARE = 0x40;

control LaneWork(in headers_t hdr, inout metadata_t meta) {
    // Set the operation, whether the packet leaves with lanes, and whether the slot is then bare.
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
            // store the packet's lanes, take out the evicted sum's
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
