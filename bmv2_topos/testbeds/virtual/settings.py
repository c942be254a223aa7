"""Settings of a virtual testbed besides its topology and its jobs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from controller.switches.capabilities import capabilities
from controller.switches.model import AGEING, SwitchInfo
from controller.switches.programs import objects, source_of
from controller.switches.target import ProgramInfo
from hostlib._native import NativeKernel
from hostlib.core.priority import Urgency
from hostlib.core.state import RtoLimits
from hostlib.core.window import Kernel
from hostlib.fallback import FallbackCore, FallbackSettings
from softswitch import compile_once, p4info, preprocess_once
from softswitch.compiler import ir

# ---------------------------------------------------------------------------
# Errors of the virtual testbed.


class TestbedError(Exception):
    """The testbed cannot run, or found a violated invariant.

    TestbedError
    ├── WrongSum    a worker was handed a result that is not the sum
    └── Stalled     nothing has moved for `VirtualSettings.patience_s`
    """

    exit_code = 2

    __test__ = False  # pytest takes classes called Test* for tests


class WrongSum(TestbedError):
    """A worker was handed a result that is not the sum of all ranks' contributions."""

    exit_code = 1


class Stalled(TestbedError):
    """Workers wait for results that do not come; names the workers, and the missing ranks."""

    exit_code = 1


# ---------------------------------------------------------------------------
# The host library's cores, which run on the testbeds' hosts.


@dataclass(frozen=True, slots=True)
class Cores:
    """Makers of the cores. Tests replace them by twins, or by broken ones.

    Either may raise `hostlib.errors.NativeMissing`.
    """

    kernel: Callable[[], Kernel] = NativeKernel
    """Maker of a worker's window."""
    server: Callable[[FallbackSettings], FallbackCore] = FallbackCore
    """Maker of a fallback server."""


COMPILED: Final = Cores()
"""The real cores."""


# ---------------------------------------------------------------------------
# The programs of a virtual testbed's switches: compiled once per process, and what they offer to jobs.


Defines = tuple[tuple[str, str], ...]


@functools.cache
def compiled(program: str, lanes: int, slots: int, more_defines: Defines = ()) -> ir.Program:
    """Compile a program, once per process.

    Args:
        program: Name of a program of ``p4src``, or path of a file that ends in ``.p4``.
        lanes: Values per packet.
        slots: Slots of the switch.
        more_defines: Further preprocessor definitions.

    Raises ProgramMismatch if there is no such program; softswitch.CompileError.
    """
    source, defines = source_of(program, lanes)
    text = preprocess_once(source, defines={**defines, "SLOTS": str(slots), **dict(more_defines)})
    return compile_once(text, name=source.stem)


@functools.cache
def objects_of(program: str, lanes: int, slots: int, more_defines: Defines = ()) -> ProgramInfo:
    """Return the objects of that program's P4Info; for arguments and errors see `compiled`."""
    return objects(p4info(compiled(program, lanes, slots, more_defines)))


@functools.cache
def offered(
    program: str, lanes: int, slots: int, more_defines: Defines = (), *, wanted: int = 0
) -> SwitchInfo:
    """Return the capacity that a program offers to jobs; for the other arguments and errors see `compiled`.

    `wanted` is the number of slots that jobs want. Also raises ProgramMismatch if the program cannot
    aggregate, and TestbedError for a user's program that has fewer slots, or other lanes, than the settings
    ask for.
    """
    found = capabilities(objects_of(program, lanes, slots, more_defines), f"the program {program}")
    if found.lanes != lanes:
        raise TestbedError(f"{found.title} puts {found.lanes} values into each packet, not {lanes}")
    if found.slots < wanted:
        raise TestbedError(
            f"{found.title} has {found.slots} slots, and {wanted} are wanted: give its registers SLOTS cells"
        )
    return found


Prioritize = Callable[[Urgency, tuple[int, int], int], int]
"""Returns a tensor's priority, 0..255: of what its rank measured, position and number of layers, the time."""

PROGRAM_SLOTS = 8192
"""Slots that the program is built for, unless more are wanted: fewer are a region of them."""

DEFAULT_WINDOW = 128
"""Packets in flight; at 10 Gb/s and 64 lanes twice the packets of a round trip of 17 µs."""


FAST_BPS: Final = 1e9
"""Links of this rate and more need no longer time-outs."""

_RTO = RtoLimits(initial_s=0.002, margin_s=0.0001, max_s=0.02, probe_s=0.000005)


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualSettings:
    """The same settings, topology, jobs and faults give the same report, whatever machine runs them."""

    program: str = "shared"
    """A program of p4src by its name, or of any file that ends in ``.p4``."""
    defines: Defines = ()
    """Additional preprocessor definitions for the program, to try its variants."""
    lanes: int = 64
    slots: int = 8192
    """Aggregator slots of every switch that aggregates. Exclusive: divided equally among the jobs."""
    max_age_s: float = 0.02
    """After this time without a contribution, any job may take a slot (shared)."""
    ecn_depth: int | None = None
    """Packets in a switch's queue from which on it marks; None: the program's own."""
    seed: int = 0
    coalesce_us: int = 5
    """Hosts look at arrived packets this often: interrupt coalescing of a network card. It adds up to as
    much to every round trip; the simulation's time goes down in proportion."""
    rto: RtoLimits = _RTO
    """On links of `FAST_BPS` and more; a real worker's default allows for the scheduler of a real machine."""
    remind_s: float = 0.0001
    """Least wait of a fallback server before it reminds."""
    remind_max_s: float = 0.02
    patience_s: float = 10.0
    """Virtual time without a result at any worker, and without computing, that ends the run."""
    limit_s: float = 3600.0
    """Virtual time that ends the run at the latest."""
    report_refusals: bool = False
    """A job that the switches cannot take when it arrives is refused, says the report; False: that is an
    error, which ends the run."""
    samples: int = 100
    """Samples of the slots in use over a run: at least half as many, at most this many. 0: none."""
    cores: Cores = COMPILED
    """Cores that run on the hosts."""
    ageing: int = AGEING
    """Ageing: the loss of a slot's priority with each packet that found it taken."""
    prioritize: Prioritize = Urgency.priority
    """Computes the priorities of jobs that have none in the job file."""
    rehashes: bool = True
    """Salted slots (program atp): a packet that collided is hashed to another slot."""

    def slower(self, slack_s: float) -> VirtualSettings:
        """Return settings for links on which a window of packets takes this much longer than on fast ones.

        A window that leaves at once makes round trips longer by as much. A worker that mistakes this for
        losses sends waiting packets again, and so makes them wait longer.
        """
        rto = self.rto
        return replace(
            self,
            rto=RtoLimits(
                initial_s=rto.initial_s + 4 * slack_s,
                margin_s=rto.margin_s + slack_s,
                max_s=rto.max_s + 8 * slack_s,
                probe_s=None if rto.probe_s is None else rto.probe_s + slack_s,
            ),
            remind_s=self.remind_s + slack_s,
            remind_max_s=self.remind_max_s + 8 * slack_s,
        )

    @property
    def _built(self) -> tuple[str, int, int, Defines]:
        """Inputs of the program's build: with more slots than requested, it serves all smaller requests."""
        return self.program, self.lanes, max(PROGRAM_SLOTS, self.slots), self.defines

    @property
    def compiled(self) -> ir.Program:
        """The program. Raises as `compiled` does."""
        return compiled(*self._built)

    @property
    def objects(self) -> ProgramInfo:
        """The objects of its P4Info. Raises as `compiled` does."""
        return objects_of(*self._built)

    @property
    def offers(self) -> SwitchInfo:
        """Its capacity for jobs. Raises as `offered` does."""
        return offered(*self._built, wanted=self.slots)

    @property
    def shares(self) -> bool:
        """True if jobs share slots, and so have fallback servers."""
        return self.offers.shared

    def __post_init__(self) -> None:
        if self.coalesce_us < 1:
            raise TestbedError(f"coalesce_us is {self.coalesce_us}, must be 1 or more")
        if self.slots < 0:
            raise TestbedError(f"slots is {self.slots}, must be 0 or more")
