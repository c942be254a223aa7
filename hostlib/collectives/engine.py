"""A worker's engine: carries out collectives through the switch, one after the other, over one socket."""

from __future__ import annotations

import threading
import time
from typing import Any, Final

import numpy as np

from hostlib import wire
from hostlib._native import NativeKernel
from hostlib.collectives import Collective, Engine
from hostlib.config import JobConfig
from hostlib.core import Peers
from hostlib.core.congestion import SPREAD, BadLimits
from hostlib.core.driver import CHECK_NS, Driver
from hostlib.core.pace import UNKNOWN, Pace, SlotHold
from hostlib.core.priority import Urgency
from hostlib.core.state import CoreSettings, Counter, RtoLimits
from hostlib.core.watchdog import Watchdog
from hostlib.core.window import Exchange, NumericErrors, Window
from hostlib.errors import (
    NO_PACKETS,
    ConfigError,
    Interrupted,
    JobBroken,
    JobFault,
    NonFiniteError,
    SumOverflow,
)
from hostlib.io.attendant import Attendant
from hostlib.io.joblog import JobLog
from hostlib.io.link import Pumped, open_link
from hostlib.windows import find

_IN_MEMORY: Final = RtoLimits(margin_s=0.025, probe_s=0.01)
"""Time-outs for packets in shared memory, where no packets are lost unless the switch is set to lose some. A
rank that sends nothing waits for a processor; if other ranks resent packets, they would take processor time
from that rank."""

_LOGGED: Final = {
    "sent_packets": Counter.SENT,
    "resent_packets": Counter.RESENT,
    "result_packets": Counter.RESULTS,
    "collided_packets": Counter.COLLIDED,
    "repaired_packets": Counter.REPAIRS,
    "bypassed_packets": Counter.BYPASSED,
}


class SwitchEngine(Engine):
    """Sums in the switch.

    Any thread may call these methods, but only one thread at a time. `statistics` and `progress` may be
    called at any time.
    """

    def __init__(self, config: JobConfig, peers: Peers) -> None:
        """Open the socket. Raises ConfigError, NativeMissing."""
        super().__init__()
        self._config = config
        self._log = _open_log(config.log)
        self._window = Window(_core_settings(config), NativeKernel())
        self._control = find(config.congestion)
        try:
            self._window.congestion = self._control.make()
        except BadLimits as error:
            raise ConfigError(str(error)) from error.__cause__
        self._link = link = open_link(config.transport, self._window)
        self._peers = peers
        self._restrict()
        watchdog = Watchdog(
            self._window, peers, config.patience, switch=config.transport.switch, ranks=config.hosts
        )
        self._driver = Driver(self._window, watchdog=watchdog)
        self._pace = Pace(self._window.settings.packets_in_flight) if config.paced else None
        self._hold = SlotHold()
        if config.paced:
            self._window.follow(UNKNOWN)
        self._aborted: tuple[type[JobBroken], str] | None = None
        self._reported_at = 0
        self._priority = 0
        self._urgency = Urgency(time.monotonic_ns())
        self._urgency_lock = threading.Lock()
        self._turn = threading.Lock()
        """Lock held by the thread that moves the window's packets."""
        self._attendant = Attendant(link, self._window, self._turn) if config.fallback else None

    def run(self, collective: Collective) -> None:
        """Carry out a collective through the switch.

        Raises InaError. After a JobBroken the window cannot be used again.
        """
        if self._broken:
            raise self._broken
        if self._log is None:
            return self._sum(collective)
        number, before, started = self._driver.done, self._counts(), time.monotonic_ns()
        error: str | None = None
        try:
            self._sum(collective)
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            self._log.write(
                "collective",
                job=self._config.job,
                rank=self._config.rank,
                number=number,
                what=collective.description + (collective.part and f" ({collective.part})"),
                bytes=collective.staged.source.nbytes,
                time_s=(time.monotonic_ns() - started) / 1e9,
                priority=self._priority,
                error=error,
                **{name: after - before[name] for name, after in self._counts().items()},
            )

    def _sum(self, collective: Collective) -> None:
        started = time.monotonic_ns()
        self._priority = self._priority_of(collective, started)
        with self._turn:
            try:
                self._restrict()
                if fault := self._peers.news.fault:  # a job whose packets all arrive would not notice it
                    raise JobFault(fault, job=self._config.job, psns=NO_PACKETS)
                exchange = Exchange(
                    collective.staged.source,
                    collective.staged.target,
                    collective.tag ^ self._control.digest,
                    collective.pattern,
                    collective.average,
                    self._priority,
                    wire.TARGET_ALL if collective.root is None else collective.root,
                    collective.stride,
                    collective.options.numbers,
                    collective.options.residual is not None,
                    collective.series,
                )
                self._window.begin(exchange, started)
                call = f"; call {collective.number + 1} here: {collective.description}"
                if self._control.digest:
                    call += (
                        f"; congestion control here: {self._control.name}, digest {self._control.digest:08x}"
                    )
                self._driver.start(started, call=call)
                if self._aborted:
                    self._check_aborted()
                self._serve()
            except JobBroken as error:
                self._give_up(error)
                raise
            except BaseException as error:
                reason = f"{collective.description} was abandoned: {error!r}"
                self._give_up(Interrupted(reason, job=self._config.job, psns=self._window.outstanding()))
                raise
        now = time.monotonic_ns()
        self._measure(now)
        self._count(collective, now - started)
        with self._urgency_lock:
            self._urgency.collective(self._window.first_result_at, now)
        self._report(now)
        self._raise_numeric_errors(collective, self._window.numeric_errors())

    def abort(self, reason: str, kind: type[JobBroken]) -> None:
        """Make collectives under way, and all later ones, raise an error of class `kind`.

        Only the first call has an effect.
        """
        self._aborted = self._aborted or (kind, reason)

    def progress(self, done: int, total: int) -> None:
        """Record that `done` of `total` iterations are over. Raises ValueError for impossible numbers."""
        with self._urgency_lock:
            self._urgency.progress(done, total, time.monotonic_ns())

    def statistics(self) -> dict[str, float]:
        """Return counters since the start, and the state of the adaptive limits."""
        window, core = self._window, self._window.state.struct
        counters = {f"packets_{counter.name.lower()}": float(window.count(counter)) for counter in Counter}
        return {
            **self._counted,
            "srtt_s": window.srtt_ns / 1e9,
            "hold_s": self._hold.hold_s,
            "window_packets": float(core.limit),
            "aggregator_window_packets": float(max(1, core.limit * core.claims // core.most)),
            "priority": float(self._priority),
            "packets_from_strangers": float(self._link.carrier.strangers),
            **counters,
        }

    def close(self) -> None:
        """Send statistics and a farewell, answer other ranks until all are done, and close the socket."""
        self._peers.report(self.statistics())
        self._peers.farewell(self._driver.done)
        if self._attendant and not self._broken:
            self._attendant.finish(self._peers.finished, patience_s=self._config.patience.timeout_s)
        self._peers.close()
        self._link.carrier.close()
        if self._log:
            self._log.close()

    def _counts(self) -> dict[str, int]:
        return {name: self._window.count(counter) for name, counter in _LOGGED.items()}

    def _serve(self) -> None:
        window, driver = self._window, self._driver
        while True:
            pumped = self._link.pump(window, driver.check_at)
            driver.take(now := time.monotonic_ns())
            if not driver.busy:
                return
            if pumped is Pumped.ERROR:
                reason = f"the socket failed: {self._link.carrier.last_error()}"
                raise JobFault(reason, job=self._config.job, psns=window.outstanding())
            self._check_aborted()
            if pumped is Pumped.ROUND:
                window.on_round()
            if driver.time_out(now):
                self._restrict()
                self._report(now)

    def _restrict(self) -> None:
        """Limit packets in flight to the link's capacity and the job's grant.

        With more packets in flight the socket would lose results: its buffer may be small
        (net.core.rmem_max). Packets beyond the granted slots would find no slot; they would go on to the
        fallback server, and delay other packets there.
        """
        room, granted = self._link.room_packets, self._peers.news.granted
        self._window.restrict_to(min(room, granted) if granted else room)

    def _measure(self, now: int) -> None:
        """Update the measured pace of results with a collective that has ended at `now`."""
        window, core = self._window, self._window.state.struct
        time_s = (now - window.first_result_at) / 1e9
        self._hold.collective(core.total, time_s, core.limit)
        if self._pace is not None and (limits := self._pace.collective(core.total, time_s)):
            window.follow(limits)

    def _check_aborted(self) -> None:
        if self._aborted:
            kind, reason = self._aborted
            raise kind(reason, job=self._config.job, psns=self._window.outstanding())

    def _give_up(self, error: JobBroken) -> None:
        """Stop receiving: a late result would be written to an array that the caller uses again."""
        self._broken = error
        if self._attendant:
            self._attendant.stop()

    def _priority_of(self, collective: Collective, now: int) -> int:
        if (priority := collective.options.priority) is not None:
            return int(priority)  # NumPy's whole numbers do not fit into a header
        if self._config.priority is not None:
            return self._config.priority
        if not self._config.fallback:
            return 0  # without preemption
        with self._urgency_lock:
            return self._urgency.priority(collective.options.layer, now)

    def _report(self, now: int) -> None:
        if now - self._reported_at > 2 * CHECK_NS:
            self._reported_at = now
            self._peers.report(self.statistics())

    def _raise_numeric_errors(self, collective: Collective, numeric_errors: NumericErrors) -> None:
        job = self._config.job
        if numeric_errors.overflow is not None:
            reason = overflow_reason(self._config, collective.staged.source.dtype)
            raise SumOverflow(job, self._window.psns(), numeric_errors.overflow, reason)
        if numeric_errors.nonfinite is not None and collective.options.nonfinite == "raise":
            what = collective.staged.unfit(numeric_errors.nonfinite, self._window.packet_elements)
            raise NonFiniteError(job, numeric_errors.nonfinite, what)


def overflow_reason(config: JobConfig, dtype: np.dtype[Any]) -> str:
    """Return the reason why a sum of this dtype overflowed."""
    if dtype != np.float32:
        return "left the int32 range"
    return f'does not fit numbers="fixed" with {config.scale_bits} scale_bits and {config.workers} ranks'


def _open_log(path: str | None) -> JobLog | None:
    try:
        return None if path is None else JobLog(path)
    except OSError as error:
        raise ConfigError(f"log {path}: {error.strerror}") from error


def _core_settings(config: JobConfig) -> CoreSettings:
    return CoreSettings(
        job=config.job,
        rank=config.worker,
        size=config.workers,
        slots=config.slots,
        lanes=config.lanes,
        endpoints=None if config.transport.kind == "udp" else config.transport.endpoints,
        rto=UNKNOWN if config.paced else _IN_MEMORY if config.transport.kind == "shm" else RtoLimits(),
        tree=config.tree,
        epoch=config.epoch,
        window=config.window_packets,
        fallback=config.fallback,
        spread=1 if config.atp else SPREAD,
        bare=config.bare,
        salted=config.atp,
        numbers=config.numbers,
        scale_bits=config.scale_bits,
    )
