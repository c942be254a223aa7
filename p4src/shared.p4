// In-network aggregation with slots that all jobs compete for (ATP, NSDI'21; preemption as in
// ESA, ICNP'23; regions as in INAlloc, INFOCOM'23). A packet without a slot goes to the job's
// fallback server. The protocol is described in docs/reference/protocol.md.
#include <core.p4>
#include <v1model.p4>

#include "include/shared_aggregator.p4"
#include "include/pipeline.p4"
