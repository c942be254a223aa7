"""What is known of a call before it is made: found out once, for all calls that are alike.

A training loop makes the same calls over and over. To describe one, and to find its path, takes longer than
to move a small tensor.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

MOST: Final = 1024
"""Plans that are kept: of a program whose sizes never repeat, not all."""

What = TypeVar("What")

Key = tuple[str, tuple[Hashable, ...]]
"""Name of a call, and `hostlib.torch.describe.likeness` of its arguments."""


@dataclass(frozen=True, slots=True)
class Plan(Generic[What]):
    """How calls that are alike are made."""

    kind: str
    """Name under which they are counted."""
    what: What | None = None
    """What the switch is to do; None: they go around it."""
    why_not: str = ""
    """Why they do."""


class Plans(dict[Key, Plan[What]]):
    """Plans by key, the latest `MOST` at most."""

    def __setitem__(self, key: Key, plan: Plan[What]) -> None:
        """Keep a plan; forget all others if there are too many."""
        if len(self) >= MOST:
            self.clear()
        super().__setitem__(key, plan)
