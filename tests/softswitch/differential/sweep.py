"""Run many random programs on both back ends: ``python -m tests.softswitch.differential.sweep``.

Prints the seed of each disagreement, and with ``--reduce`` a short program that shows it.
"""

from __future__ import annotations

import argparse
import itertools
import sys
import time
import traceback

from softswitch.engine.build import FLAGS
from tests.softswitch.differential import trial


def main() -> int:
    """Sweep; exit code 1 if the back ends disagreed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first seed")
    parser.add_argument("--programs", type=int, default=1000, help="how many programs (0: no end)")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="stop after this long")
    parser.add_argument("--optimised", action="store_true", help="compile as the product does (slower)")
    parser.add_argument("--reduce", action="store_true", help="shorten the programs that disagree")
    args = parser.parse_args()

    seeds = itertools.count(args.first)
    failures = 0
    started = time.monotonic()
    done = 0
    for seed in itertools.islice(seeds, args.programs or None):
        if time.monotonic() - started > args.seconds:
            break
        done += 1
        try:
            trial.run(seed, FLAGS if args.optimised else trial.QUICK)
        except Exception as error:  # whatever it is, the seed must be told
            failures += 1
            print(f"seed {seed}: {type(error).__name__}: {str(error)[:2000]}", flush=True)
            if not isinstance(error, AssertionError):
                traceback.print_exc(limit=-4)
            elif args.reduce:
                print(trial.reduced(trial.source(seed), seed), flush=True)
    print(f"{done} programs, {failures} failures, {time.monotonic() - started:.0f} s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
