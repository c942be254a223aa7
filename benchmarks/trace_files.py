"""The public traces in Muri's format that are found in a folder, with the number of servers of each."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from controller.simulator.runs import RunFailed

SAMPLE = Path(__file__).with_name("small_muri.csv")

MURI = tuple(f"trace{number}{suffix}" for number in (3, 1, 2, 4) for suffix in ("", "_pr"))
LONG = ("trace1", "trace2", "trace4")
"""Prefixes of the names of traces of more than a thousand jobs."""

SLOW = ("muri-l", "weave-l", "gandiva")
"""Policies that take minutes on them: without durations they decide at every event."""

JOB_TYPES = ("job_type_1", "job_type_2", "job_type_3")


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace file and its number of servers, of eight GPUs each."""

    name: str
    path: Path
    nodes: int = 8


def takes_minutes(trace: Trace, policy: str) -> bool:
    """Return True if this policy takes minutes on this trace."""
    return policy in SLOW and trace.name.startswith(LONG)


def traces(folder: Path | None) -> list[Trace]:
    """Return the traces below `folder`, first the one that all policies run on; None: the shipped sample.

    Raises RunFailed if there is none.
    """
    if folder is None:
        return [Trace("sample", SAMPLE, 2)]
    files = [(name, folder / "muri" / f"{name}.csv") for name in (*MURI, *JOB_TYPES)]
    files.append(("c1000", folder / "common" / "c1000" / "muri.csv"))
    found = [Trace(name, path) for name, path in files if path.exists()]
    if not found:
        raise RunFailed(f"--traces {folder}: no muri/trace3.csv or the like there", exit_code=2)
    return found
