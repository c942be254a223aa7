// Egress: notifies the workers of growing queues (ECN, as in ATP).
//
// On the way up a mark goes into the sum, and all ranks receive it in the same result. The copies
// of a result leave by different queues: only some ranks would see a mark in the INA header, and
// their windows would then differ. So results are marked in the IP header only, and a rank that
// sees this mark sets FLAG_ECN in its next contribution.
#ifndef INA_MARKING_P4
#define INA_MARKING_P4

#include "headers.p4"

const bit<2> ECN_CONGESTED = 3;     // RFC 3168

control Marking(inout headers_t hdr, inout metadata_t meta,
                in standard_metadata_t standard_metadata) {
    bit<19> limit = 0;

    // A packet is marked if it leaves `depth` packets or more in the queue.
    action set_threshold(bit<19> depth) {
        limit = depth;
    }

    table threshold {
        actions = { set_threshold; }
        default_action = set_threshold(ECN_DEPTH);
    }

    apply {
        threshold.apply();
        if (standard_metadata.deq_qdepth >= limit) {
            if (meta.way == TO_UPLINK) {
                hdr.ina.flags = hdr.ina.flags | FLAG_ECN;
            } else {
                hdr.ipv4.ecn = ECN_CONGESTED;
            }
        }
    }
}

#endif
