"""A rank of a trial job of ``ina doctor``: sums arrays, checks the result, and prints the goodput."""

from __future__ import annotations

import json
import time

import numpy as np

import hostlib

ELEMENTS = 250_000
ROUNDS = 3


def main() -> dict[str, float]:
    """Join the job, sum an array several times, and leave.

    Returns the goodput in bit/s, and the numbers of packets sent and sent again. Exits if a sum is wrong.
    """
    hostlib.init()
    values = np.arange(ELEMENTS, dtype=np.int32)
    hostlib.barrier()
    started = time.monotonic()
    for _ in range(ROUNDS):
        total = hostlib.allreduce(values)
    elapsed_s = time.monotonic() - started
    if not (total == values * hostlib.size()).all():
        raise SystemExit("a sum is wrong")
    statistics = hostlib.statistics()
    hostlib.shutdown()
    return {
        "goodput_bps": ROUNDS * values.nbytes * 8 / elapsed_s,
        "sent": statistics["packets_sent"],
        "again": statistics.get("packets_retransmitted", 0.0),
    }


if __name__ == "__main__":
    print(json.dumps(main()))
