// Sizes that differ from the v1model programs': 32 lanes fit beside the rest of a slot into one
// pass of Tofino 1, and 64 into one of Tofino 2 (docs/reference/tofino.md).
#ifndef INA_TNA_CONFIG_P4
#define INA_TNA_CONFIG_P4

#ifndef LANES
#define LANES 32
#endif

// Slots; every register has one entry for each.
#ifndef SLOTS
#define SLOTS 16384
#endif

// Entries of the table `member`: children and parents of all jobs.
#define MEMBERS 4096

#include "../../include/headers.p4"

typedef bit<16> index_t;

struct tna_headers_t {
    ethernet_t ethernet;
    ipv4_h     ipv4;
    udp_t      udp;
    ina_t      ina;
    lanes_t    lanes;
}

// Sent back into this pipeline, never on a wire, after the slot's sum has left the slot.
const bit<4> KIND_RELEASE = 15;

// The index of a packet's slot: psn % size of its job's region, added to the region's start, which
// may also rotate it. XOR does both for a region of a power of two of slots at a multiple of that.
// The first register computes the index again: a hash unit gives an address to a register of its
// own stage, but `meta.index` only to registers of the next.
#define ADDRESS addressing.get({ meta.position, meta.place })

// A packet's operation on the lanes of its slot (lanes.p4).
const bit<2> MEETS_NOTHING = 0;
const bit<2> MEETS_OWN     = 1;     // the slot holds the packet's sum, or is empty
const bit<2> MEETS_OTHER   = 2;     // another sum is evicted
const bit<2> MEETS_TO_READ = 3;     // a reminder takes out the sum

#endif
