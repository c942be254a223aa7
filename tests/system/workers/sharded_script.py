"""Runs a script as one rank, and notes the collectives that it calls.

``python sharded_script.py FOLDER SCRIPT ARGUMENT…`` writes a file for its rank into
FOLDER when the script destroys its default group. With gloo, torch says what it is asked for: each collective
passes its dispatcher, before any backend sees it. With "ina" the groups say which way their calls took.
"""

from __future__ import annotations

import json
import runpy
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

What = Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast"]
CALLS: Final[dict[str, What]] = {
    "allreduce_": "all_reduce",
    "_allgather_base_": "all_gather",
    "allgather_": "all_gather",
    "_reduce_scatter_base_": "reduce_scatter",
    "reduce_scatter_": "reduce_scatter",
    "broadcast_": "broadcast",
}
"""torch's operators, by what they do. Others that communicate are refused: nothing is to be left out."""
SILENT: Final = ("barrier",)
"""Operators that move no tensor."""


@dataclass(frozen=True, slots=True)
class Call:
    """A collective of a group, as one of its ranks called it."""

    what: What
    ranks: tuple[int, ...]
    """The group's, in the default group."""
    elements: int
    """Of the whole: what is reduced, what all ranks' shards come to, what is broadcast."""
    bytes_each: int
    root: int = 0
    """Of a broadcast, in the group."""


class Notes(TorchDispatchMode):
    """Notes the collectives that pass torch's dispatcher."""

    def __init__(self) -> None:
        """Have none yet."""
        super().__init__()
        self.calls: list[Call] = []

    def __torch_dispatch__(  # type: ignore[no-untyped-def]  # torch's signature
        self, func, types, args=(), kwargs=None
    ) -> Any:
        """Do as asked; note it if it communicates."""
        space, _, name = func.name().partition("::")
        if space == "c10d" and name not in SILENT:
            self.calls.append(_call(name, args))
        elif space == "_c10d_functional":
            raise NotImplementedError(f"functional collective {name}: only those of torch.distributed count")
        return func(*args, **(kwargs or {}))


def _call(name: str, args: Sequence[Any]) -> Call:
    what = CALLS.get(name)
    if what is None:
        raise NotImplementedError(f"collective {name}: want one of {', '.join(CALLS)}")
    group = next(arg for arg in args if isinstance(arg, torch.ScriptObject))
    ranks = tuple(dist.get_process_group_ranks(dist.ProcessGroup.unbox(group)))
    tensors = [each for each in _flat(args[:2]) if isinstance(each, torch.Tensor)]
    whole = max(tensors, key=lambda each: each.numel())
    elements = whole.numel()
    if name in ("allgather_", "reduce_scatter_"):
        elements = min(each.numel() for each in tensors) * len(ranks)
    root = args[2] if what == "broadcast" else 0
    return Call(what, ranks, elements, whole.element_size(), root)


def _flat(values: Any) -> list[Any]:
    return [
        each for value in values for each in (_flat(value) if isinstance(value, list | tuple) else [value])
    ]


def paths() -> list[dict[str, Any]]:
    """Return the groups of this process: job in the switch, ranks, and calls by kind and path."""
    return [
        {"job": group.job, "ranks": dist.get_process_group_ranks(group), "paths": group.paths()}
        for group in dist.distributed_c10d._world.pg_map
        if dist.get_backend(group) == "ina"
    ]


def main() -> None:
    """Run the script."""
    folder, script, sys.argv = Path(sys.argv[1]), sys.argv[2], sys.argv[2:]
    notes = Notes()
    destroy: Callable[..., None] = dist.destroy_process_group

    def destroy_noted(group: Any = None) -> None:
        if group is None:
            found = {"calls": [asdict(each) for each in notes.calls], "groups": paths()}
            (folder / f"{dist.get_rank()}.json").write_text(json.dumps(found))
        destroy(group)

    dist.destroy_process_group = destroy_noted
    with notes:
        runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
