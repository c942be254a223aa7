"""``python -m benchmarks.p4.p4_fuzz packets --seconds 3600``; see the package."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from benchmarks.fill import option, parse_options
from benchmarks.p4 import p4_fuzz
from benchmarks.p4.p4_fuzz.watch import KINDS, Defect, Job, watched


def main() -> None:
    """Try cases for some time, or until a defect: then the exit status is 1."""
    args = parse_options(
        p4_fuzz.__doc__,
        option("kind", choices=KINDS),
        option("--seconds", type=float, default=60, help="try cases for this long, in seconds (60)"),
        option("--seed", type=int, default=1, help="draw the cases by this seed (1)"),
        option("--first", type=int, default=0, metavar="NUMBER", help="begin with this case (0)"),
        option("--cases", type=int, metavar="COUNT", help="try at most this many"),
        option("--corpus", type=Path, help="take programs of this folder, not of tests/ and p4src/"),
        prog="python -m benchmarks.p4.p4_fuzz",
    )
    job = Job(args.kind, args.seed, args.corpus)
    outcomes: Counter[str] = Counter()
    try:
        for _, outcome in watched(job, first=args.first, cases=args.cases, until_s=args.seconds):
            outcomes[outcome] += 1
    except Defect as defect:
        sys.exit(f"{outcomes.total():,} cases were well, then: {defect}\n\n{job.again(defect.number)}")
    print(f"{outcomes.total():,} cases of {args.kind}, seed {args.seed}: {dict(outcomes.most_common())}")


if __name__ == "__main__":
    main()
