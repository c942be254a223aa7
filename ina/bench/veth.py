"""Speed of the switch between veth interfaces: single frames, superframes, and a comparison with BMv2.

Host ``h1`` keeps a window of frames in flight to host ``h2``, and sends more when frames arrive there. So
the switch is never flooded with frames that it must drop. A time per frame is the processor time of the
switch's process, in user and kernel mode: other load on the machine affects it less than frames per second.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial

from ina.bench.veth_bed import FRAME, SUPERFRAME, FrameLink, Kind, RawFrames, Superframes, VethBed, bed, check

SMALL_FRAME = 64
WINDOW: Mapping[Kind, int] = {"ina": 512, "bmv2": 64}
"""Maximum number of frames in flight, by kind of switch. BMv2 has a queue of 64, and drops further frames."""
SUPERFRAMES = 24
"""Maximum number of superframes in flight."""
PAUSE_S = 20e-6
PATIENCE_S = 5.0
"""Seconds without an arrival after which all frames in flight count as lost."""


@dataclass(frozen=True, slots=True)
class VethPassed:
    """Frames that one host sent to the other through a switch in `wall_s` seconds."""

    switch: Kind
    name: str
    frames: int
    frame_bytes: int
    lost: int
    wall_s: float
    cpu_s: float
    """Processor time of the switch's process."""

    @property
    def frames_per_s(self) -> float:
        """Frames that arrived, per second."""
        return self.frames / self.wall_s

    @property
    def bits_per_s(self) -> float:
        """Bits of the frames that arrived, per second."""
        return 8 * self.frame_bytes * self.frames_per_s

    @property
    def ns_per_frame(self) -> float:
        """Processor time of the switch per frame, in ns."""
        return 1e9 * self.cpu_s / max(1, self.frames)


@dataclass(frozen=True, slots=True)
class VethBench:
    """Result of each case: the round whose number of frames per second is the median of all rounds."""

    cases: tuple[VethPassed, ...]

    def times_baseline(self, value: Callable[[VethPassed], float]) -> dict[str, float]:
        """Return, by case, `value` of our switch divided by `value` of BMv2; {} if BMv2 was not measured."""
        theirs = {case.name: value(case) for case in self.cases if case.switch == "bmv2"}
        ours = {case.name: value(case) for case in self.cases if case.switch == "ina"}
        return {name: ours[name] / theirs[name] for name in theirs if theirs[name]}


def bench_veth(*, baseline: bool, round_s: float, rounds: int) -> VethBench:
    """Measure our switch and, with `baseline`, BMv2 with the same program and frames, in alternating runs.

    Raises NetnsError, or its subclass MissingRequirement if a package is missing; ControllerError.
    """
    kinds: tuple[Kind, ...] = ("ina", "bmv2") if baseline else ("ina",)
    check(kinds)
    with contextlib.ExitStack() as stack:
        raw = [(kind, stack.enter_context(bed(kind, offload=False))) for kind in kinds]
        another = stack.enter_context(bed("ina", offload=False))
        offloading = stack.enter_context(bed("ina", offload=True))
        runs = [partial(_raw, kind, on, size, round_s) for size in (SMALL_FRAME, FRAME) for kind, on in raw]
        runs.append(partial(_beside, raw[0][1], another, round_s))
        runs.append(partial(_superframes, offloading, round_s))
        done = [[run() for run in runs] for _ in range(rounds)]
    return VethBench(tuple(_middle(of_case) for of_case in zip(*done, strict=True)))


def _middle(rounds: Sequence[VethPassed]) -> VethPassed:
    return sorted(rounds, key=lambda each: each.frames_per_s)[len(rounds) // 2]


def _raw(kind: Kind, on: VethBed, frame_bytes: int, duration_s: float) -> VethPassed:
    with contextlib.closing(RawFrames(on, frame_bytes)) as link:
        return _passed(kind, "frame by frame", on, link, frame_bytes, WINDOW[kind], duration_s)


def _beside(on: VethBed, another: VethBed, duration_s: float) -> VethPassed:
    """Measure our switch while a second process of our switch forwards the same frames."""
    with ThreadPoolExecutor(1) as threads:
        other = threads.submit(_raw, "ina", another, FRAME, duration_s)
        found = _raw("ina", on, FRAME, duration_s)
        other.result()
    return replace(found, name=f"{found.name}, a second switch forwarding, too")


def _superframes(on: VethBed, duration_s: float) -> VethPassed:
    with contextlib.closing(Superframes(on)) as link:
        return _passed("ina", "superframes", on, link, FRAME, SUPERFRAMES * SUPERFRAME, duration_s)


def _passed(
    kind: Kind, how: str, on: VethBed, link: FrameLink, frame_bytes: int, window: int, duration_s: float
) -> VethPassed:
    started_s, used_s = time.monotonic(), on.cpu_s()
    frames, lost = keep_full(link, window, duration_s, time.monotonic)
    wall_s = time.monotonic() - started_s
    return VethPassed(kind, f"{frame_bytes} B, {how}", frames, frame_bytes, lost, wall_s, on.cpu_s() - used_s)


def keep_full(link: FrameLink, window: int, duration_s: float, clock: Callable[[], float]) -> tuple[int, int]:
    """Send with at most `window` frames in flight; return the numbers of frames that arrived and were lost.

    Args:
        link: The path from host ``h1`` to host ``h2``.
        window: Maximum number of frames in flight.
        duration_s: Time of sending, in seconds.
        clock: Returns the time in seconds.
    """
    sent = lost = seen = 0
    before, moved_s = link.arrived(), clock()
    end_s = moved_s + duration_s
    while (now_s := clock()) < end_s or sent - lost > seen:
        arrived = link.arrived() - before
        if arrived > seen:
            seen, moved_s = arrived, now_s
        elif now_s - moved_s > PATIENCE_S:
            lost, moved_s = sent - seen, now_s
        taken = link.send(window - (sent - lost - seen)) if now_s < end_s else 0
        sent += taken
        if not taken:
            time.sleep(PAUSE_S)
    return seen, sent - seen
