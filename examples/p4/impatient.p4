// shared.p4 with another eviction rule: a packet takes the slot of a sum that has received no contribution
// for 40 microseconds, a few round trips. Such a sum waits for a straggler, and can do that elsewhere.
//
//     ina sim examples/sim.toml --slots 64 --program examples/p4/impatient.p4
//
// The evicted sum goes to its job's fallback server, and waits there.
#include <core.p4>
#include <v1model.p4>

#define INA_EVICTION_P4     // in the place of p4src/include/eviction.p4
#include "../../p4src/include/slot.p4"

control Eviction(in ina_t ina, in metadata_t meta, in slot_t slot, in bit<32> now,
                 out bit<1> aged, out bit<1> outranks) {
    apply {
        aged = now - slot.touched > 40 ? 1w1 : 1w0;
        outranks = 0;       // priorities do not count here
    }
}

#include "../../p4src/shared.p4"
