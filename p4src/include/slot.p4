// The state of a shared slot besides its lanes.
#ifndef INA_SLOT_P4
#define INA_SLOT_P4

#include "headers.p4"

struct slot_t {
    bit<32> generation;
    bit<32> psn;
    bit<32> bitmap;         // 0: free
    bit<32> tag;
    bit<32> touched;        // microseconds; wraps after 71 minutes
    bit<8>  exponent;
    bit<8>  flags;          // FLAGS_OF_RESULT, SLOT_FINAL, SLOT_FULL, SLOT_BARE
    bit<16> job;
    bit<16> target;
    bit<8>  priority;
}

#endif
