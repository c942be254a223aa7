"""Next steps: a comparison of the desired with the held state. Pure.

Repeated after every change, so that no earlier desired state has to be remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.core import Desired, Place, Run
from controller.vocabulary import Region
from ina.service.holds import HeldRun


@dataclass(frozen=True, slots=True)
class Start:
    """Admit these jobs, and start their workers."""

    run: Run
    places: Mapping[str, Place]


@dataclass(frozen=True, slots=True)
class Stop:
    """End the workers of a run, and take its jobs off their switches."""

    number: int
    why: str


@dataclass(frozen=True, slots=True)
class Resize:
    """Move a running job to other slots, or change its packets in flight."""

    number: int
    job: str
    place: Place


Step = Start | Stop | Resize


def steps(desired: Desired, held: Mapping[int, HeldRun]) -> list[Step]:
    """Return the steps that are possible now: stops first, then moves to other slots, then starts.

    A run starts when no run that must stop holds its GPUs, and none of its jobs has workers in another run. A
    run with a new tree is stopped, and starts again there; so is a group with a member that must end, without
    that member. O(runs · GPUs).
    """
    wanted = {run.number: run for run in desired.runs}
    stops: list[Step] = []
    moves: list[Step] = []
    leaving: set[int] = set()  # GPUs
    elsewhere: set[str] = set()  # jobs with workers in a run that must stop
    for number, has in held.items():
        why = _why_stopped(wanted.get(number), desired.places, has)
        if has.stage == "stopping":
            why = why or "its start or its end was interrupted"
        if why is not None:
            leaving.update(has.run.gpus)
            elsewhere.update(set(has.run.jobs) - has.over)
        if has.busy:
            continue
        if why is not None:
            stops.append(Stop(number, why))
        elif has.stage == "running":
            moves += [
                Resize(number, name, desired.places[name])
                for name in wanted[number].jobs
                if name not in has.over and _memory(desired.places[name]) != _memory(has.places[name])
            ]
    starts: list[Step] = [
        Start(run, {name: desired.places[name] for name in run.jobs if name in desired.places})
        for number, run in wanted.items()
        if number not in held
        and not leaving.intersection(run.gpus)
        and not elsewhere.intersection(run.jobs)
        and _placed(run, desired)
    ]
    return [*stops, *moves, *starts]


def _memory(place: Place) -> tuple[Mapping[str, Region], int]:
    return place.regions, place.in_flight


def _placed(run: Run, desired: Desired) -> bool:
    return all(name in desired.places for name in run.jobs)


def _why_stopped(run: Run | None, places: Mapping[str, Place], has: HeldRun) -> str | None:
    if run is None:
        return "it is not to run any more"
    if gone := sorted(set(has.run.jobs) - has.over - set(run.jobs)):  # cancelled, or late
        return f"job {gone[0]!r} is not to run any more"
    for name in run.jobs:
        now, then = places.get(name), has.places.get(name)
        if name in has.over or now is None or then is None:
            continue
        if now.servers != then.servers:
            return f"job {name!r} is to run on {', '.join(now.servers)}"
        if (now.tree, now.fallback) != (then.tree, then.fallback):
            return f"job {name!r} is to have another tree"
    return None
