// The path of a packet, in all programs. The programs differ only in their control Aggregator, which
// defines the effect of a packet on its slot.
#ifndef INA_PIPELINE_P4
#define INA_PIPELINE_P4

#include "parser.p4"
#include "checksums.p4"
#include "admission.p4"
#include "passage.p4"
#include "uplink.p4"
#include "reply.p4"
#include "forwarding.p4"
#include "marking.p4"
#include "delivery.p4"

control InaIngress(inout headers_t hdr, inout metadata_t meta,
                   inout standard_metadata_t standard_metadata) {
    // Packets per (job, outcome); row 0 counts packets of no admitted job.
    counter((bit<32>)(JOB_ROWS * 32), CounterType.packets) outcomes;
    Admission() admission;
    Passage() passage;
    Aggregator() aggregator;
    Reply() reply;
    Uplink() uplink;
    Forwarding() forwarding;

    action count(outcome_t outcome) {
        outcomes.count((bit<32>)(meta.counter_row ++ (bit<5>)outcome));
    }

    apply {
        if (standard_metadata.parser_error != error.NoError) {
            count(outcome_t.TRUNCATED);
            mark_to_drop(standard_metadata);
        } else if (standard_metadata.checksum_error == 1) {
            count(outcome_t.BAD_CHECKSUM);
            mark_to_drop(standard_metadata);
        } else if (hdr.ina.isValid()) {
            bool admitted;
            admission.apply(hdr, meta, standard_metadata, admitted);
            if (admitted) {
                bool passes;
                passage.apply(hdr, meta, passes);
                if (!passes) {
                    aggregator.apply(hdr, meta, standard_metadata);
                }
                if (meta.outcome == outcome_t.COMPLETED) {
                    if ((hdr.ina.flags & FLAG_OVERFLOW) != 0) {
                        count(outcome_t.OVERFLOW);
                    }
                    if ((hdr.ina.flags & FLAG_DISAGREE) != 0) {
                        count(outcome_t.DISAGREE);
                    }
                }
            }
            count(meta.outcome);
            reply.apply(hdr, meta, standard_metadata);
            if (meta.way == TO_UPLINK) {
                bool known;
                uplink.apply(hdr, meta, standard_metadata, known);
                if (!known) {
                    count(outcome_t.NO_UPLINK);
                } else if (meta.evicted == 1) {
                    count(outcome_t.EVICTED);
                }
            }
        } else {
            forwarding.apply(hdr, meta, standard_metadata);
        }
    }
}

control InaEgress(inout headers_t hdr, inout metadata_t meta,
                  inout standard_metadata_t standard_metadata) {
    Marking() marking;
    Delivery() delivery;

    apply {
        if (hdr.ina.isValid()) {
            marking.apply(hdr, meta, standard_metadata);
        }
        delivery.apply(hdr, meta, standard_metadata);
    }
}

V1Switch(InaParser(), VerifyChecksums(), InaIngress(), InaEgress(),
         ComputeChecksums(), InaDeparser()) main;

#endif
