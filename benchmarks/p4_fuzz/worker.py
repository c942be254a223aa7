"""The process that tries cases: ``python -m benchmarks.p4_fuzz.worker KIND SEED FIRST [CORPUS]``.

It writes a line before each case, its number, and a line after it, what became of it. It goes on until its
output is closed; a defect ends it, with the reason on standard error.
"""

from __future__ import annotations

import itertools
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.p4_fuzz import messages, packets, programs

KINDS: Mapping[str, Callable[[int, Path | None], Callable[[int], str]]] = {
    "programs": programs.cases,
    "packets": packets.cases,
    "messages": messages.cases,
}
"""By kind: from seed and corpus to what tries a case by its number."""


def main() -> None:
    """Try one case after the other."""
    os.environ.pop("LD_PRELOAD", None)  # the sanitizers, which are in this process: not for compilers
    kind, seed, first, *corpus = sys.argv[1:]
    case = KINDS[kind](int(seed), Path(corpus[0]) if corpus else None)
    try:
        for number in itertools.count(int(first)):
            print(number, flush=True)
            print(case(number), flush=True)
    except BrokenPipeError:
        os._exit(0)


if __name__ == "__main__":
    main()
