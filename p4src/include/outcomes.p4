// What became of an INA packet: the column of its job's counter row.
#ifndef INA_OUTCOMES_P4
#define INA_OUTCOMES_P4

typedef bit<5> outcome_t;

// Accepted.
const outcome_t OUTCOME_AGGREGATED   = 0;   // added to its slot, sum not complete yet
const outcome_t OUTCOME_COMPLETED    = 1;   // added, complete: sum multicast to the job
const outcome_t OUTCOME_REPLAYED     = 2;   // sum was complete: cached result to the sender
const outcome_t OUTCOME_DUPLICATE    = 3;   // already counted, sum not complete: dropped
const outcome_t OUTCOME_STATUS       = 4;   // the same, and the sender asked who is missing
const outcome_t OUTCOME_STALE        = 5;   // older than what the slot holds: dropped
// Refused: dropped without touching any slot.
const outcome_t OUTCOME_TRUNCATED    = 6;   // frame ends inside a header
const outcome_t OUTCOME_BAD_CHECKSUM = 7;   // IPv4 header checksum
const outcome_t OUTCOME_BAD_VERSION  = 8;
const outcome_t OUTCOME_BAD_KIND     = 9;   // not a gradient
const outcome_t OUTCOME_BAD_LANES    = 10;  // built for another number of lanes
const outcome_t OUTCOME_BAD_LENGTH   = 11;  // lengths of frame, IPv4, UDP and lanes disagree
const outcome_t OUTCOME_UNKNOWN_JOB  = 12;
const outcome_t OUTCOME_WRONG_PORT   = 13;  // the job is not admitted at this port
const outcome_t OUTCOME_WRONG_RANK   = 14;  // bitmap is not that of the member at this port
const outcome_t OUTCOME_WRONG_FAN_IN = 15;  // the sender believes in another job size
// Beside one of the above.
const outcome_t OUTCOME_OVERFLOW     = 16;  // a finished sum carried FLAG_OVERFLOW
const outcome_t OUTCOME_DISAGREE     = 17;  // a finished sum carried FLAG_DISAGREE

#endif
