// Packets that this switch only forwards: of jobs without memory here, and between workers and
// the fallback server.
#ifndef INA_PASSAGE_P4
#define INA_PASSAGE_P4

#include "headers.p4"

control Passage(inout headers_t hdr, inout metadata_t meta, out bool passes) {
    action pass(outcome_t outcome, bit<2> way) {
        meta.outcome = outcome;
        meta.way = way;
        meta.kind = hdr.ina.kind;
    }

    table passage {
        key = {
            meta.transit:    ternary;
            meta.from_above: ternary;
            hdr.ina.kind:    ternary;
        }
        actions = { pass; NoAction; }
        const default_action = NoAction;    // to the aggregator
        const entries = {
            (1, 0, _):            pass(outcome_t.PASSED_UP,   TO_UPLINK);
            (1, 1, _):            pass(outcome_t.PASSED_DOWN, TO_GROUP);
            // parts of a sum, and results that a reminder requested
            (_, 0, KIND_PARTIAL): pass(outcome_t.PASSED_UP,   TO_UPLINK);
            (_, 0, KIND_RESULT):  pass(outcome_t.PASSED_UP,   TO_UPLINK);
            (_, 1, KIND_STATUS):  pass(outcome_t.PASSED_DOWN, TO_GROUP);
        }
    }

    apply {
        passes = passage.apply().hit;
    }
}

#endif
