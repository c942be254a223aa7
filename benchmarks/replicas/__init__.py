"""Replicas of published simulators: their rules to the digit, so that their figures can be checked.

Each has a folder with its policies, its speed models, its loop, and mostly its `Family`:

- `muri`: Muri's, with an event loop of its own, because there every event touches every running job;
- `synergy` and `lucid`: Synergy's and Lucid's, which go in steps (`steps`);
- `mina`: MINA's, without a `Family`, because its jobs are not submitted: their sums take turns at switches.

Commands take ``benchmarks.replicas.muri:srtf`` as a policy, in a folder from which `benchmarks` can be
imported; tables call it ``muri-replica:srtf``. Constants are the public code's: they stay when the product's
change.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from controller.policies.registry import find_family

MURI, SYNERGY, LUCID = (f"benchmarks.replicas.{name}" for name in ("muri", "synergy", "lucid"))
TABLES: Final[Mapping[str, str]] = {"muri-replica": MURI, "synergy-replica": SYNERGY, "lucid-replica": LUCID}
"""Families of replicas by their names in tables."""


def full_name(name: str) -> str:
    """Return a policy's name for commands, given its name in tables; the product's policies have one name.

    >>> full_name("muri-replica:srtf"), full_name("synergy:fifo+tune")
    ('benchmarks.replicas.muri:srtf', 'synergy:fifo+tune')
    """
    kind, colon, policy = name.partition(":")
    return f"{TABLES.get(kind, kind)}{colon}{policy}"


def known(*kinds: str) -> list[str]:
    """Return the names in tables of all policies of replicas, or of these kinds of `TABLES`."""
    return [f"{kind}:{policy}" for kind in kinds or TABLES for policy in find_family(TABLES[kind]).policies]
