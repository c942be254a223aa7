// ATP as published (NSDI'21), for comparison: slots are hashed by the position in the window and hashed
// again after a collision; a slot stays taken until the server's result passes; the server makes every
// result. Otherwise it equals shared.p4 without preemption (docs/reference/protocol/shared.md).
#define ADDRESSING SALTED
#define HELD_SLOTS
#include <core.p4>
#include <v1model.p4>

#include "include/shared_aggregator.p4"
#include "include/pipeline.p4"
