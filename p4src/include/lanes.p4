// The lanes of the slots, int32: one register each, and a packet's operation on them.
#ifndef INA_LANES_P4
#define INA_LANES_P4

#include "headers.p4"

#define LANE_REGISTER(i) register<bit<32>>(SLOTS) lane_##i;
#define OVERWRITE_LANE(i) lane_##i.write(meta.index, hdr.lanes.v##i);
#define FETCH_LANE(i)     lane_##i.read(hdr.lanes.v##i, meta.index);
#define EXCHANGE_LANE(i) \
        lane_##i.read(old, meta.index); \
        lane_##i.write(meta.index, hdr.lanes.v##i); \
        hdr.lanes.v##i = old;
// Two's complement; a lane overflowed if both terms have one sign and the sum has the other.
#define ADD_LANE(i) \
        lane_##i.read(old, meta.index); \
        sum = old + hdr.lanes.v##i; \
        signs = signs | ((old ^ sum) & (hdr.lanes.v##i ^ sum)); \
        lane_##i.write(meta.index, sum); \
        hdr.lanes.v##i = sum;

control Lanes(inout headers_t hdr, inout metadata_t meta) {
    EVERY_LANE(LANE_REGISTER)

    action overwrite() {
        EVERY_LANE(OVERWRITE_LANE)
    }

    action fetch() {
        EVERY_LANE(FETCH_LANE)
    }

    action exchange() {
        bit<32> old;
        EVERY_LANE(EXCHANGE_LANE)
    }

    action add() {
        bit<32> old;
        bit<32> sum;
        bit<32> signs = 0;
        EVERY_LANE(ADD_LANE)
        meta.overflow = signs[31:31];
    }

    apply {
        if (meta.lane_operation == LANES_OVERWRITE) {
            overwrite();
        } else if (meta.lane_operation == LANES_ADD) {
            add();
        } else if (meta.lane_operation == LANES_FETCH) {
            fetch();
        } else if (meta.lane_operation == LANES_EXCHANGE) {
            exchange();
        }
    }
}

#endif
