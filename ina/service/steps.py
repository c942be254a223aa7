"""The next steps that lead from the held runs to the desired state. No I/O.

The steps are computed again after every change, so that earlier desired states need not be stored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from controller.core import Desired, Place, Run
from controller.vocabulary import Region
from ina.service.holds import HeldRun


@dataclass(frozen=True, slots=True)
class Start:
    """A step: admit the jobs of a run to their switches, and start their workers.

    `places` has the place (servers, tree, slots) of each job.
    """

    run: Run
    places: Mapping[str, Place]


@dataclass(frozen=True, slots=True)
class Stop:
    """A step: end the workers of the run `number`, and remove its jobs from their switches."""

    number: int
    why: str


@dataclass(frozen=True, slots=True)
class Resize:
    """A step: move a running job to the slots of `place`, or change its maximum of packets in flight."""

    number: int
    job: str
    place: Place


Step = Start | Stop | Resize


def steps(desired: Desired, held: Mapping[int, HeldRun]) -> list[Step]:
    """Return the steps that are possible now: stops first, then moves to other slots, then starts.

    Runs that must stop may use GPUs of a new run, or still have workers of its jobs. The new run can start
    only after they have released these GPUs and ended these workers. If a job of a run gets other servers or
    another tree, the run is stopped, and started again there. If a job of a group must end, the group is
    stopped, and started again without that job. O(runs · GPUs).
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
        return "it is no longer scheduled to run"
    if gone := sorted(set(has.run.jobs) - has.over - set(run.jobs)):  # cancelled, or late
        return f"job {gone[0]!r} is no longer scheduled to run"
    for name in run.jobs:
        now, then = places.get(name), has.places.get(name)
        if name in has.over or now is None or then is None:
            continue
        if now.servers != then.servers:
            return f"job {name!r} moves to {', '.join(now.servers)}"
        if (now.tree, now.fallback) != (then.tree, then.fallback):
            return f"job {name!r} gets another tree"
    return None
