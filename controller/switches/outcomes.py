"""Generated from p4src/include/outcomes.p4 by `generate_outcomes`; do not edit."""

COLUMNS = 32
"""Cells of one job's row in the counter of outcomes."""

OUTCOMES = {
    "aggregated": 0,
    "completed": 1,
    "replayed": 2,
    "duplicate": 3,
    "status": 4,
    "stale": 5,
    "truncated": 6,
    "bad_checksum": 7,
    "bad_version": 8,
    "bad_kind": 9,
    "bad_lanes": 10,
    "bad_length": 11,
    "unknown_job": 12,
    "wrong_port": 13,
    "wrong_rank": 14,
    "wrong_fan_in": 15,
    "overflow": 16,
    "disagree": 17,
    "collided": 18,
    "bypassed": 19,
    "preempted": 20,
    "reclaimed": 21,
    "evicted": 22,
    "flushed": 23,
    "pulled": 24,
    "relayed": 25,
    "stored": 26,
    "passed_up": 27,
    "passed_down": 28,
    "wrong_epoch": 29,
    "wrong_direction": 30,
    "no_uplink": 31,
}
"""Outcome of an INA packet: the column of its counter in the row."""
