"""Runs `ina` where the clock of the day is ahead: ``python -m tests.system.skewed SECONDS ARGUMENTS…``.

Not behind: gRPC takes deadlines from the clock of Python, and compares them with the machine's.
"""

from __future__ import annotations

import sys
import time

from ina.cli import main

if __name__ == "__main__":
    ahead_s = float(sys.argv.pop(1))
    right, right_ns = time.time, time.time_ns
    time.time = lambda: right() + ahead_s
    time.time_ns = lambda: right_ns() + int(ahead_s * 1e9)
    sys.argv[0] = "ina"
    main()
