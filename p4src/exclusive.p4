// In-network aggregation with a private region of slots for every job
// (SwitchML, NSDI'21; the protocol is described in docs/reference/protocol.md).
#include <core.p4>
#include <v1model.p4>

#include "include/exclusive_aggregator.p4"
#include "include/pipeline.p4"
