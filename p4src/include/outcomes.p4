// The outcome of an INA packet: the column of its job's counter row.
#ifndef INA_OUTCOMES_P4
#define INA_OUTCOMES_P4

enum bit<5> outcome_t {
    // A contribution that a slot processed.
    AGGREGATED      = 0,    // added to its slot, sum not complete yet
    COMPLETED       = 1,    // added, complete: to the job, or to the switch above
    REPLAYED        = 2,    // sum was complete: cached result to the sender
    DUPLICATE       = 3,    // already counted, no answer needed: dropped
    STATUS          = 4,    // already counted, and the sender asked for the status
    STALE           = 5,    // its PSN is older than the slot's: dropped
    // Refused: dropped without touching any slot.
    TRUNCATED       = 6,    // frame ends inside a header
    BAD_CHECKSUM    = 7,    // IPv4 header checksum
    BAD_VERSION     = 8,
    BAD_KIND        = 9,
    BAD_LANES       = 10,   // wrong number of lanes for its kind in this program
    BAD_LENGTH      = 11,   // lengths of frame, IPv4, UDP and lanes disagree
    UNKNOWN_JOB     = 12,
    WRONG_PORT      = 13,   // the job is not admitted at this port
    WRONG_RANK      = 14,   // bitmap or node is not a member's at this port
    WRONG_FAN_IN    = 15,   // the sender has another job size
    // Counted in addition to another outcome.
    OVERFLOW        = 16,   // a finished sum carried FLAG_OVERFLOW
    DISAGREE        = 17,   // a finished sum carried FLAG_DISAGREE
    // Shared slots: a contribution whose slot was taken, or that had none.
    COLLIDED        = 18,   // slot taken: sent to the fallback server
    BYPASSED        = 19,   // to the fallback server without trying for a slot
    PREEMPTED       = 20,   // took the slot from a sum of lower priority
    RECLAIMED       = 21,   // took the slot from a sum that was too old
    EVICTED         = 22,   // in addition to PREEMPTED or RECLAIMED, in the row of the job that lost the slot
    // Partial sums on their way to the fallback server.
    FLUSHED         = 23,   // a resend took the partial sum out
    PULLED          = 24,   // a reminder took it, or the result
    // Between the switches of a tree.
    RELAYED         = 25,   // complete here, no result yet: sum sent up again
    STORED          = 26,   // a result from above, kept in its slot and passed on
    PASSED_UP       = 27,
    PASSED_DOWN     = 28,
    // Also refused.
    WRONG_EPOCH     = 29,   // from an earlier admission under the same job id
    WRONG_DIRECTION = 30,   // this kind of packet cannot come from this port
    NO_UPLINK       = 31    // no uplink to send it to; counted in addition to another outcome, or alone
}

#endif
