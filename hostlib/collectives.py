"""One collective: what is summed, and how it is carried through the switch or, alone, in this process."""

from __future__ import annotations

import time
import zlib
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hostlib import arrays
from hostlib.config import JobConfig
from hostlib.core.congestion import FixedWindow
from hostlib.core.kernel import KernelName, choose_kernel
from hostlib.core.state import CoreSettings, Counter
from hostlib.core.watchdog import Watchdog
from hostlib.core.window import Mishaps, Window
from hostlib.errors import (
    Interrupted,
    JobBroken,
    JobFault,
    NonFiniteError,
    RanksDisagree,
    SumOverflow,
    UnsupportedArray,
)
from hostlib.io.link import Link, Pumped
from hostlib.io.open import open_link
from hostlib.peers import Peers

Op = Literal["sum", "average"]
NonFinite = Literal["raise", "propagate"]

CHECK_NS: Final = 250_000_000
"""How often a waiting worker looks up: for the death of a peer, for signals, to report."""


@dataclass(frozen=True, slots=True)
class Collective:
    """An allreduce that has been asked for."""

    staged: arrays.Staged
    average: bool
    nonfinite: NonFinite
    description: str
    """What all ranks must agree on, readable."""

    @property
    def tag(self) -> int:
        """Digest of the description, which every packet carries."""
        return zlib.crc32(self.description.encode())


def make_collective(
    array: ArrayLike, op: Op, out: NDArray[Any] | None, name: str | None, nonfinite: NonFinite
) -> Collective:
    """Check the arguments of an allreduce. Raises UnsupportedArray."""
    if op not in get_args(Op):
        raise UnsupportedArray(f"op is {op!r}, must be one of {get_args(Op)}")
    if nonfinite not in get_args(NonFinite):
        raise UnsupportedArray(f"nonfinite is {nonfinite!r}, must be one of {get_args(NonFinite)}")
    staged = arrays.stage(array, out)
    if op == "average" and staged.dtype == np.int32:
        raise UnsupportedArray("the average of int32 is not an int32: sum, or convert to float32 first")
    description = f"{op} of {len(staged.source)} {staged.dtype}"
    if name is not None:
        description += f" {name!r}"
    return Collective(staged, op == "average", nonfinite, description)


def make_barrier() -> Collective:
    """Return a collective that sums nothing, but has to be met by all ranks."""
    return Collective(arrays.stage(np.empty(0, np.int32)), False, "raise", "barrier")


class Engine(Protocol):
    """Carries out collectives, one after the other."""

    def run(self, collective: Collective) -> None:
        """Fill the collective's target. Raises InaError; after a JobBroken nothing more can be run."""
        ...

    def statistics(self) -> dict[str, float]:
        """Return counters since the start, flat, SI units in the names."""
        ...

    def close(self) -> None:
        """Free what the engine holds."""
        ...


class LocalEngine:
    """A job of one rank: every sum is the input."""

    def run(self, collective: Collective) -> None:
        """Copy. Raises NonFiniteError as a job in the switch would."""
        staged = collective.staged
        if collective.nonfinite == "raise" and not np.isfinite(staged.source).all():
            raise NonFiniteError(0, int(np.argmin(np.isfinite(staged.source))))
        if staged.target is not staged.source:
            np.copyto(staged.target, staged.source)

    def statistics(self) -> dict[str, float]:
        """Return nothing: no packets."""
        return {}

    def close(self) -> None:
        """Do nothing."""


class SwitchEngine:
    """Sums in the switch, through one socket."""

    def __init__(self, config: JobConfig, peers: Peers, *, kernel: KernelName = "auto") -> None:
        """Open the socket. Raises ConfigError."""
        loopback = config.transport.kind == "loopback"
        settings = CoreSettings(
            job=config.job,
            rank=config.rank,
            size=config.size,
            slots=config.slots,
            lanes=config.lanes,
            endpoints=config.transport.endpoints if loopback else None,
        )
        self._job = config.job
        self._window = Window(settings, choose_kernel(kernel))
        link = open_link(config.transport, self._window)
        # More in flight than the socket holds would be lost, and net.core.rmem_max may allow little.
        self._window.congestion = FixedWindow(link.room_packets)
        self._link: Link = link
        self._watchdog = Watchdog(self._window, peers, config.patience)
        self._peers = peers
        self._broken: JobBroken | None = None
        self._reported_at = 0
        self._collectives = 0
        self._elements = 0
        self._busy_ns = 0

    def run(self, collective: Collective) -> None:
        """Sum through the switch. Raises InaError; after a JobBroken the window is out of step for good."""
        if self._broken:
            raise self._broken
        started = time.monotonic_ns()
        staged = collective.staged
        self._window.begin(
            staged.source, staged.target, tag=collective.tag, average=collective.average, now=started
        )
        try:
            self._serve(collective)
        except JobBroken as error:
            self._broken = error
            raise
        except BaseException as error:
            reason = f"{collective.description} was abandoned: {error!r}"
            self._broken = Interrupted(reason, job=self._job, psns=self._window.outstanding())
            raise
        now = time.monotonic_ns()
        self._collectives += 1
        self._elements += len(staged.source)
        self._busy_ns += now - started
        self._report(now)
        self._raise_mishaps(collective, self._window.mishaps())

    def statistics(self) -> dict[str, float]:
        """Return counters since the start."""
        window = self._window
        counters = {f"packets_{counter.name.lower()}": float(window.count(counter)) for counter in Counter}
        return {
            "collectives": float(self._collectives),
            "elements": float(self._elements),
            "time_s": self._busy_ns / 1e9,
            "srtt_s": window.srtt_ns / 1e9,
            **counters,
        }

    def close(self) -> None:
        """Close the socket, with a last report and a farewell to the peers."""
        self._peers.report(self.statistics())
        self._peers.close()
        self._link.close()

    def _serve(self, collective: Collective) -> None:
        window = self._window
        check_at = time.monotonic_ns() + CHECK_NS
        while (pumped := self._link.pump(window, check_at)) is not Pumped.DONE:
            if pumped is Pumped.DISAGREE:
                raise RanksDisagree(
                    f"ranks disagree on length, dtype, operation or name; here: {collective.description}",
                    job=self._job,
                    psns=window.outstanding(),
                )
            if pumped is Pumped.ERROR:
                raise JobFault(
                    f"the socket failed: {self._link.last_error()}", job=self._job, psns=window.outstanding()
                )
            now = time.monotonic_ns()
            window.on_timeout(now)
            if now >= check_at:
                check_at = now + CHECK_NS
                if error := self._watchdog.check(now):
                    raise error
                self._report(now)

    def _report(self, now: int) -> None:
        if now - self._reported_at > 2 * CHECK_NS:
            self._reported_at = now
            self._peers.report(self.statistics())

    def _raise_mishaps(self, collective: Collective, mishaps: Mishaps) -> None:
        if mishaps.overflow is not None:
            raise SumOverflow(self._job, self._window.psns(), mishaps.overflow)
        if mishaps.nonfinite is not None and collective.nonfinite == "raise":
            raise NonFiniteError(self._job, mishaps.nonfinite)
