"""Decide the order in which the jobs of a group use resources: in turns, with a barrier between turns.

Time is cut into slots, as in figure 4 and equation 3 of the paper (Muri, SIGCOMM'22). An iteration has k
stages, one for each resource. In slot s the job whose offset is o may carry out its stage (o + s) mod k.
Offsets differ, so in each slot only one job uses a resource. A slot begins when every member waits for a
stage, and only members that wait for their job's stage in this slot go on; the other members keep waiting. So
a job begins its first iteration in the slot of its first stage, a job that omits a stage skips that slot, and
no job waits for a job that has ended. A job that is alone, or the last one left, takes no turns: its
processes go on without waiting.

No I/O, no clock: `turn_server` moves the messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from hostlib.errors import refuse
from hostlib.interleave.stages import STAGES, GroupError, Stage


@dataclass(frozen=True, slots=True, order=True)
class Member:
    """One process of a group: a rank of a job."""

    job: str
    rank: int

    def __str__(self) -> str:
        return f"job {self.job}, rank {self.rank}"


class _State(Enum):
    ELSEWHERE = "has not reached its next stage"
    ASKING = "waits for a stage"
    WORKING = "carries out a stage"


class TurnOrder:
    """The turns of one group of jobs.

    `ask` and `leave` return the members that may now start the stage for which they wait. Once `broken` has a
    reason, no member may go on.
    """

    def __init__(self, offsets: Mapping[str, int], ranks: Mapping[str, int]) -> None:
        """Set up the turns of the jobs in `offsets` and `ranks`, which both have the jobs' names as keys.

        `offsets` maps a job to the number of its first stage; `ranks` maps a job to its number of processes.

        Raises GroupError if offsets are not distinct numbers of stages, or a job has no process.
        """
        stages = range(len(STAGES))
        refuse(
            not offsets or offsets.keys() != ranks.keys(),
            f"offsets of jobs {sorted(offsets)}, ranks of jobs {sorted(ranks)}; want the same jobs",
            GroupError,
        )
        refuse(
            len({*offsets.values()}) != len(offsets) or not {*offsets.values()} <= {*stages},
            f"offsets {dict(offsets)}: want a different one for each job, in 0..{len(STAGES) - 1}",
            GroupError,
        )
        for job, number in ranks.items():
            refuse(number < 1, f"job {job} has {number} ranks; at least 1 is needed", GroupError)
        self._offsets = dict(offsets)
        self._states = {
            Member(job, rank): _State.ELSEWHERE for job, number in ranks.items() for rank in range(number)
        }
        self._waiting: dict[Member, Stage] = {}
        self._slot = 0
        self.broken: str | None = None
        self.culprit: Member | None = None
        """The member that broke the group; None: the group is not broken."""

    @property
    def members(self) -> frozenset[Member]:
        """Members of the group that have not left."""
        return frozenset(self._states)

    def ask(self, member: Member, stage: Stage) -> list[Member]:
        """Record that `member` waits for `stage`."""
        self._expect(member, _State.ELSEWHERE, f"asks for its turn at {stage}")
        self._states[member] = _State.ASKING
        self._waiting[member] = stage
        return self._open()

    def done(self, member: Member) -> None:
        """Record that `member` has ended its stage.

        The slot ends when `member` asks for its next stage, or leaves.
        """
        self._expect(member, _State.WORKING, "ends a stage")
        self._states[member] = _State.ELSEWHERE

    def leave(self, member: Member) -> list[Member]:
        """Record that `member` leaves the group; without effect if it has left before."""
        self._states.pop(member, None)
        self._waiting.pop(member, None)
        return self._open()

    def lose(self, member: Member, reason: str) -> None:
        """Record that `member` ended without a farewell, which breaks the group; no effect if it has left."""
        if member in self._states and self.broken is None:
            self.broken = f"{member}: {reason}"
            self.culprit = member

    def behind(self) -> list[Member]:
        """Return the members for which the others wait; none if no member waits."""
        if not self._waiting:
            return []
        return sorted(member for member, doing in self._states.items() if doing is not _State.ASKING)

    def _expect(self, member: Member, doing: _State, what: str) -> None:
        found = self._states.get(member)
        if found is not doing:
            state = "is not in the group" if found is None else f"but it {found.value}"
            raise GroupError(f"{member} {what}, {state}")

    def _open(self) -> list[Member]:
        """Begin the next slot in which a job has its turn, if all members wait for a stage."""
        if self.broken or not self._waiting:
            return []
        if len({member.job for member in self._states}) == 1:
            return self._start_stage(sorted(self._waiting))
        if len(self._waiting) < len(self._states):
            return []
        wanted: dict[str, tuple[Member, Stage]] = {}
        for member in sorted(self._waiting):
            stage = self._waiting[member]
            other, expected = wanted.setdefault(member.job, (member, stage))
            if expected != stage:
                self.broken = (
                    f"{member} waits for stage {stage}, rank {other.rank} for {expected}:"
                    " all ranks of a job must go through the same stages"
                )
                self.culprit = member
                return []
        for slot in range(self._slot, self._slot + len(STAGES)):
            turns = {
                job
                for job, (_, stage) in wanted.items()
                if STAGES[(self._offsets[job] + slot) % len(STAGES)] == stage
            }
            if turns:
                break
        self._slot = slot + 1
        return self._start_stage(sorted(member for member in self._waiting if member.job in turns))

    def _start_stage(self, going: list[Member]) -> list[Member]:
        for member in going:
            del self._waiting[member]
            self._states[member] = _State.WORKING
        return going
