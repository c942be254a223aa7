"""Leases of jobs: their encoding in a row's metadata, and which have expired. No I/O.

A job that is to end with its launcher is admitted with a lease, which the launcher renews for as long as it
lives. A lease expires at a wall-clock time: the clocks of all controllers that admit jobs to a switch have
to agree to within less than a lease's length.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from controller.switches.model import Admission, Lease

LATEST_MS = (1 << 63) - 1


def encode(lease: Lease | None) -> bytes:
    """Write a lease as metadata; none is empty.

    >>> encode(Lease(1700000000000, "host 17"))
    b'{"ina_lease": {"until_ms": 1700000000000, "holder": "host 17"}}'
    """
    if lease is None:
        return b""
    return json.dumps({"ina_lease": {"until_ms": lease.until_ms, "holder": lease.holder}}).encode()


def decode(metadata: bytes) -> Lease | None:
    """Read the output of `encode`; any other metadata is no lease.

    >>> decode(b"of somebody else")
    """
    try:
        match json.loads(metadata):
            case {"ina_lease": {"until_ms": int(until_ms), "holder": str(holder)}} if (
                0 <= until_ms <= LATEST_MS
            ):
                return Lease(until_ms, holder)
    except (ValueError, RecursionError):
        pass
    return None


def run_out(jobs: Iterable[Admission], now_ms: int) -> list[Admission]:
    """Return the jobs whose leases have expired."""
    return [job for job in jobs if job.lease is not None and job.lease.until_ms < now_ms]
