// Decides if a packet may take a slot that another sum holds.
//
// Your own program may have another rule: define INA_EVICTION_P4 and a control Eviction with these
// parameters, then include shared.p4. The evicted sum goes to the fallback server, so with any rule
// all sums are right (docs/guides/own-rules.md).
#ifndef INA_EVICTION_P4
#define INA_EVICTION_P4

#include "slot.p4"

control Eviction(in ina_t ina, in metadata_t meta, in slot_t slot, in bit<32> now,
                 out bit<1> aged, out bit<1> outranks) {
    apply {
        // No packet has joined the slot for too long: counted as reclaimed.
        aged = now - slot.touched > meta.max_age_us ? 1w1 : 1w0;
        // The packet is more urgent: counted as preempted.
        outranks = meta.preempt == 1 && ina.priority > slot.priority ? 1w1 : 1w0;
    }
}

#endif
