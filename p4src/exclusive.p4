// In-network aggregation with a private region of slots for every job
// (SwitchML, NSDI'21; the protocol is described in docs/protocol.md).
#include <core.p4>
#include <v1model.p4>

#include "include/config.p4"
#include "include/outcomes.p4"
#include "include/headers.p4"
#include "include/parser.p4"
#include "include/checksums.p4"
#include "include/admission.p4"
#include "include/aggregator.p4"
#include "include/reply.p4"
#include "include/forwarding.p4"
#include "include/delivery.p4"

control InaIngress(inout headers_t hdr, inout metadata_t meta,
                inout standard_metadata_t standard_metadata) {
    // Packets per (job, outcome); row 0 counts those of no admitted job.
    counter((bit<32>)(JOB_ROWS * 32), CounterType.packets) outcomes;
    Admission() admission;
    Aggregator() aggregator;
    Reply() reply;
    Forwarding() forwarding;

    action count(outcome_t outcome) {
        outcomes.count((bit<32>)(meta.counter_row ++ outcome));
    }

    apply {
        if (standard_metadata.parser_error != error.NoError) {
            count(OUTCOME_TRUNCATED);
            mark_to_drop(standard_metadata);
        } else if (standard_metadata.checksum_error == 1) {
            count(OUTCOME_BAD_CHECKSUM);
            mark_to_drop(standard_metadata);
        } else if (hdr.ina.isValid()) {
            bool admitted;
            admission.apply(hdr, meta, standard_metadata, admitted);
            if (admitted) {
                aggregator.apply(hdr, meta);
                if (meta.outcome == OUTCOME_COMPLETED) {
                    if ((hdr.ina.flags & FLAG_OVERFLOW) != 0) {
                        count(OUTCOME_OVERFLOW);
                    }
                    if ((hdr.ina.flags & FLAG_DISAGREE) != 0) {
                        count(OUTCOME_DISAGREE);
                    }
                }
            }
            count(meta.outcome);
            reply.apply(hdr, meta, standard_metadata);
        } else {
            forwarding.apply(hdr, meta, standard_metadata);
        }
    }
}

control InaEgress(inout headers_t hdr, inout metadata_t meta,
               inout standard_metadata_t standard_metadata) {
    Delivery() delivery;

    apply {
        delivery.apply(hdr, meta, standard_metadata);
    }
}

V1Switch(InaParser(), VerifyChecksums(), InaIngress(), InaEgress(),
         ComputeChecksums(), InaDeparser()) main;
