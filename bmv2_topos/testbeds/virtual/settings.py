"""Settings of a virtual testbed besides its topology and its jobs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from controller.switches.model import AGEING, SwitchInfo
from controller.switches.programs import capabilities, objects, source_of
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
    ├── WrongSum    a worker got a result that is not the sum
    └── Stalled     no worker has got a result for `VirtualSettings.patience_s`
    """

    exit_code = 2

    __test__ = False  # pytest takes classes called Test* for tests


class WrongSum(TestbedError):
    """A worker got a result that is not the sum of all ranks' contributions."""

    exit_code = 1


class Stalled(TestbedError):
    """Workers wait for results and get none; the message names the workers and the missing ranks."""

    exit_code = 1


# ---------------------------------------------------------------------------
# The host library's cores, which run on the testbeds' hosts.


@dataclass(frozen=True, slots=True)
class Cores:
    """Functions that make the hosts' protocol cores; tests pass models of the cores, or faulty cores.

    Both functions may raise `hostlib.errors.NativeMissing`.
    """

    kernel: Callable[[], Kernel] = NativeKernel
    """Makes the kernel of the workers' windows."""
    server: Callable[[FallbackSettings], FallbackCore] = FallbackCore
    """Makes the core of a fallback server."""


COMPILED: Final = Cores()
"""The real, compiled cores."""


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

    Raises ProgramMismatch if there is no such program; softswitch.CompileError if it has an error.
    """
    source, defines = source_of(program, lanes)
    text = preprocess_once(source, defines={**defines, "SLOTS": str(slots), **dict(more_defines)})
    return compile_once(text, name=source.stem)


@functools.cache
def objects_of(program: str, lanes: int, slots: int, more_defines: Defines = ()) -> ProgramInfo:
    """Return the tables and other objects of a program's P4Info; for arguments and errors see `compiled`."""
    return objects(p4info(compiled(program, lanes, slots, more_defines)))


@functools.cache
def offered(
    program: str, lanes: int, slots: int, more_defines: Defines = (), *, wanted: int = 0
) -> SwitchInfo:
    """Return the capacity that a program offers to jobs; for other arguments and errors see `compiled`.

    `wanted` is the number of slots that jobs want. Also raises ProgramMismatch if the program cannot
    aggregate, and TestbedError for a user's program that has fewer slots, or another number of lanes, than
    the settings ask for.
    """
    found = capabilities(objects_of(program, lanes, slots, more_defines), f"the program {program}")
    if found.lanes != lanes:
        raise TestbedError(f"{found.title} puts {found.lanes} values into each packet, not {lanes}")
    if found.slots < wanted:
        raise TestbedError(
            f"{found.title} has {found.slots} slots, but {wanted} are needed: declare its registers with the"
            " size SLOTS, a macro that is defined as the number of slots"
        )
    return found


Prioritize = Callable[[Urgency, tuple[int, int], int], int]
"""Function that returns a tensor's priority, 0..255. Its arguments are the measurements of the tensor's rank,
the tensor's layer with the number of layers, and the time in nanoseconds."""

PROGRAM_SLOTS = 8192
"""Minimum number of slots that programs are compiled for; a testbed with fewer slots uses only a part of
them."""

DEFAULT_WINDOW = 128
"""Default number of packets in flight: twice as many as are sent in a round trip of 17 µs, at 10 Gb/s and 64
lanes."""


FAST_BPS: Final = 1e9
"""Rate in bits/s: time-outs need no extra time for links of at least this rate (`VirtualSettings.slower`)."""

_RTO = RtoLimits(initial_s=0.002, margin_s=0.0001, max_s=0.02, probe_s=0.000005)


@dataclass(frozen=True, slots=True, kw_only=True)
class VirtualSettings:
    """Settings of a run. Equal settings, topology, jobs and faults give equal reports on any machine."""

    program: str = "shared"
    """Name of a program of p4src, or path of a file that ends in ``.p4``."""
    defines: Defines = ()
    """Additional preprocessor definitions for the program, to try variants of the program."""
    lanes: int = 64
    slots: int = 8192
    """Slots of every aggregating switch. With an exclusive program they are divided among the jobs."""
    max_age_s: float = 0.02
    """Time without a contribution after which other jobs may take a slot, if jobs share slots."""
    ecn_depth: int | None = None
    """Queue length, in packets, from which on a switch marks packets (ECN); None: the program's default."""
    seed: int = 0
    coalesce_us: int = 5
    """Interval at which hosts look at arrived packets, like interrupt coalescing of a network card. It makes
    every round trip longer by up to this time, and the simulation faster in proportion."""
    rto: RtoLimits = _RTO
    """Limits of workers' time-outs on links of at least `FAST_BPS`. Real workers have longer time-outs by
    default, because of the scheduler of a real machine."""
    remind_s: float = 0.0001
    """Shortest wait of a fallback server for missing contributions before it sends a reminder."""
    remind_max_s: float = 0.02
    patience_s: float = 10.0
    """Virtual time after which the run ends with Stalled if no worker gets a result, and none computes."""
    limit_s: float = 3600.0
    """Virtual time after which the run ends with Stalled in any case."""
    report_refusals: bool = False
    """True: a job that the switches cannot take on arrival is reported as refused; False: this is an error,
    which ends the run."""
    samples: int = 100
    """Maximum number of samples of the slots in use; a run gets at least half as many. 0: no samples."""
    cores: Cores = COMPILED
    """Functions that make the protocol cores of the hosts."""
    ageing: int = AGEING
    """Amount by which a slot's priority falls with each packet that finds the slot taken."""
    prioritize: Prioritize = Urgency.priority
    """Computes the priorities of tensors for jobs without a priority in the job file."""
    rehashes: bool = True
    """Whether a packet that collided is hashed to another slot, in programs with salted slots (atp)."""

    def slower(self, slack_s: float) -> VirtualSettings:
        """Return the settings with longer time-outs, for links where a window takes `slack_s` longer.

        A window that is sent at once makes round trips longer by this time. A worker that took the delay for
        a loss would send waiting packets again, and so delay them further.
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
        """Arguments of `compiled`; one build with many slots serves all settings with fewer slots."""
        return self.program, self.lanes, max(PROGRAM_SLOTS, self.slots), self.defines

    @property
    def compiled(self) -> ir.Program:
        """The compiled program. Raises the errors of the function `compiled`."""
        return compiled(*self._built)

    @property
    def objects(self) -> ProgramInfo:
        """The objects of the program's P4Info. Raises the errors of the function `compiled`."""
        return objects_of(*self._built)

    @property
    def offers(self) -> SwitchInfo:
        """The program's capacity for jobs. Raises the errors of `offered`."""
        return offered(*self._built, wanted=self.slots)

    @property
    def shares(self) -> bool:
        """True if jobs share slots, and therefore need fallback servers."""
        return self.offers.shared

    def __post_init__(self) -> None:
        if self.coalesce_us < 1:
            raise TestbedError(f"coalesce_us is {self.coalesce_us}, must be 1 or more")
        if self.slots < 0:
            raise TestbedError(f"slots is {self.slots}, must be 0 or more")
