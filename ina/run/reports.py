"""Describes the jobs, decisions, servers and switches of the service, from the service's state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from controller.core import FinishedJob
from controller.vocabulary.errors import plural
from ina.errors import Unknown
from ina.run.effects import Effects
from ina.run.launch.executor import Executor
from ina.run.ledger import Ledger
from ina.run.measures import Measures, percent
from ina.run.network import ClusterNetwork
from ina.run.records import JobRecord, State
from ina.run.steps import HeldRun
from ina.run.views import (
    ClusterView,
    ExplanationView,
    LogLine,
    ServerView,
    ShareView,
    SwitchView,
    covered,
    of_decision,
    of_job,
)

_KNOWN_S = 1e-9
"""Time, in s. A shorter estimate of a job's remaining time counts as 0."""


class Reports:
    """Describes the state of the service for users; never changes the state."""

    def __init__(
        self,
        ledger: Ledger,
        effects: Effects,
        network: ClusterNetwork,
        measures: Measures,
        executor: Executor,
    ) -> None:
        self._ledger = ledger
        self._effects = effects
        self._network = network
        self._measures = measures
        self._executor = executor
        self._waits_of: dict[str, str] = {}
        self._waits_to = 0
        """Number of the last line of the log of decisions that `_waits_of` takes into account."""
        self._over_of: dict[str, FinishedJob] = {}
        self._over_to = 0
        self._forgotten = 0
        """Number of archived jobs at the last call of `_forget`, which removes such jobs from the caches."""

    def records(self) -> list[JobRecord]:
        """Return the records of all jobs that are not archived, in order of submission."""
        return self.of(self._ledger.submitted)

    def record(self, name: str) -> JobRecord:
        """Return the record of the job with the id `name`. Raises Unknown if there is none."""
        if name not in self._ledger.submitted:
            raise Unknown(f"there is no job {name!r}")
        return self.of([name])[0]

    def of(self, names: Iterable[str]) -> list[JobRecord]:
        """Return the records of the jobs with these ids.

        Takes O(runs + requested jobs), and O(lines of the log of decisions) over all calls together.
        """
        self._forget()
        over = self._over()
        held = {name: hold for hold in self._ledger.holds.values() for name in hold.run.jobs}
        waits, troubles = self._waits(), self._effects.why()
        return [self._of(self._ledger.submitted[name], over, held, waits, troubles) for name in names]

    def _forget(self) -> None:
        """Remove the jobs that were archived since the last call from the caches of this object."""
        ledger = self._ledger
        if self._forgotten != ledger.forgotten:
            self._forgotten = ledger.forgotten
            self._waits_of = {name: why for name, why in self._waits_of.items() if name in ledger.submitted}
            self._over_of, self._over_to = {}, 0

    def _waits(self) -> dict[str, str]:
        """Return the latest reason why each job has waited, by job. Each line of the log is read once."""
        log = self._ledger.log
        if self._waits_to < log.last:
            for _, entry in log.after(self._waits_to):
                if entry.event in ("waits", "interrupted", "stopped", "retried"):
                    self._waits_of.update(dict.fromkeys(entry.jobs, entry.text))
            self._waits_to = log.last
        return self._waits_of

    def _over(self) -> dict[str, FinishedJob]:
        """Return the latest end of each ended job, by job.

        Each entry of `Core.finished_jobs` is read once.
        """
        ended = self._ledger.core.finished_jobs
        for number in range(self._over_to, len(ended)):
            self._over_of[ended[number].job.spec.name] = ended[number]
        self._over_to = len(ended)
        return self._over_of

    def _of(
        self,
        submitted: JobRecord,
        over: Mapping[str, FinishedJob],
        held: Mapping[str, HeldRun],
        waits: Mapping[str, str],
        troubles: Mapping[str, str],
    ) -> JobRecord:
        name, now_s = submitted.name, self._ledger.now_s
        if name in self._ledger.core.refused:
            return replace(submitted, state="refused", reason=self._ledger.core.refused[name])
        if (why := self._ledger.quotas.waits(name)) is not None:
            return replace(submitted, state="queued", reason=why)
        if name in self._ledger.left:
            outcome, why = self._ledger.left[name]
            return replace(submitted, state=outcome, reason=why, late=outcome == "missed")
        due_s = submitted.job.due_s
        again, _ = self._ledger.again.get(name, (0, -1))
        job = self._ledger.core.jobs.get(name)
        if job is None:
            ended = over[name]
            return replace(
                submitted,
                state=ended.outcome,
                reason=ended.reason,
                started_s=ended.job.start_s,
                ended_s=ended.job.finish_s,
                done=float(ended.job.spec.iterations) if ended.outcome == "completed" else 0.0,
                left_s=0.0,
                starts=ended.job.starts + again,
                late=ended.outcome == "missed" or (due_s is not None and (ended.job.finish_s or 0.0) > due_s),
            )
        hold = held.get(name)
        state: State = "queued"
        engine, started = "", True
        if hold is not None and hold.stage != "preparing":
            engine, started = self._executor.shown(hold.run.number)
        if hold is not None:
            begun = "running" if started else "starting"
            state = {"preparing": "starting", "running": begun, "stopping": "stopping"}[hold.stage]  # type: ignore[assignment]
        left_s = max(0.0, job.iterations_left(now_s) * job.alone_s)
        # It runs longer than its job file states, and reports no progress: its end is unknown.
        unknown = left_s < _KNOWN_S and not self._ledger.latest.get(name)
        return replace(
            submitted,
            state=state,
            reason=troubles.get(name)
            or ("" if started else engine)
            or ("" if state == "running" else waits.get(name, "waits for its turn" if hold is None else "")),
            place=hold.run.places.get(name) if hold is not None else None,
            run=hold.run.number if hold is not None else None,
            engine=engine,
            started_s=job.start_s,
            done=self._ledger.latest.get(name, 0.0),
            left_s=None if unknown else left_s,
            starts=job.starts + again,
            fallback_share=self._measures.share(hold.run.number, name) if hold is not None else None,
            late=due_s is not None and now_s + left_s > due_s,
        )

    def explain(self, name: str) -> ExplanationView:
        """Return an explanation of a job's state: the decisions about it, and advice to its owner."""
        record, now_s = self.record(name), self._ledger.now_s
        advice = [record.reason] if record.reason and not record.over else []
        if record.late and not record.over:
            due_s = record.job.due_s
            assert due_s is not None
            past_s = now_s - due_s
            if past_s > 0:
                advice.append(f"it has missed its deadline, {past_s:.1f} s ago")
            else:
                advice.append(f"it will miss its deadline by about {past_s + (record.left_s or 0.0):.1f} s")
        if why := self._why_fallback(record):
            advice.append(why)
        about = [of_decision(each) for each in self.decisions() if name in each.entry.jobs]
        return {"now_s": now_s, "job": of_job(record, now_s), "decisions": about, "advice": advice}

    def _why_fallback(self, record: JobRecord) -> str:
        """Return why packets of a job went to the fallback server; "": none did, or this is unknown."""
        share, place = record.fallback_share, record.place
        if not share or place is None:
            return ""
        others = [
            name
            for hold in self._ledger.holds.values()
            for name, each in hold.run.places.items()
            if name not in hold.over
            and name != record.name
            and any(at in place.regions and of.overlaps(place.regions[at]) for at, of in each.regions.items())
        ]
        slots = ", ".join(
            f"{plural(region.size, 'slot')} of {at}" for at, region in sorted(place.regions.items())
        )
        if not others:
            held = f"the job's packets in flight need more slots than it has: {slots or 'no slots'}"
        else:
            held = f"{slots} are shared with {', '.join(others)}"
        return f"{percent(share)} of its packets went to the fallback server {place.fallback}: {held}"

    def cluster(self, records: Sequence[JobRecord], *, operates: bool) -> ClusterView:
        """Return a description of the cluster, with the number of jobs by state.

        Args:
            records: The jobs to count: those that the author of the request may see.
            operates: Whether the author may drain servers and switches.
        """
        ledger = self._ledger
        topology = ledger.topology
        return {
            "now_s": ledger.now_s,
            "began_at": ledger.clock.began_at,
            "operates": operates,
            "name": topology.name,
            "root": topology.root,
            "policies": dict(ledger.policies.names),
            "jobs": dict(Counter(record.state for record in records)),
            "servers": self.servers(),
            "switches": self.switches(),
            "links": [{"a": link.a, "b": link.b, "rate_bps": link.rate_bps} for link in topology.links],
        }

    def servers(self) -> list[ServerView]:
        """Return all servers of the cluster, each with the number of its GPUs in use."""
        ledger, gpus = self._ledger, self._gpus_used()
        used: dict[str, list[str]] = {}
        for hold in ledger.holds.values():
            for name, place in hold.run.places.items():
                for server in dict.fromkeys(place.servers):
                    used.setdefault(server, []).append(name)
        return [
            {
                "name": each.name,
                "role": each.role,
                "gpus": each.gpus,
                "used": min(each.gpus, gpus[each.name]),
                "jobs": used.get(each.name, []),
                "down": ledger.drained.get(each.name, "") or ledger.down.get(each.name, ""),
            }
            for each in ledger.topology.servers
        ]

    def switches(self) -> list[SwitchView]:
        """Return all switches of the cluster, each with the jobs that hold its slots."""
        ledger = self._ledger
        shares: dict[str, list[ShareView]] = {each.name: [] for each in ledger.topology.switches}
        for hold in ledger.holds.values():
            for name, place in hold.run.places.items():
                for switch, region in place.regions.items() if name not in hold.over else ():
                    share: ShareView = {
                        "job": name,
                        "first": region.offset,
                        "slots": region.size,
                        "standing": place.standing.value if place.standing else None,
                    }
                    shares.setdefault(switch, []).append(share)
        return [
            {
                "name": each.name,
                "address": self._network.addresses.get(each.name, ""),
                "slots": each.slots,
                "free": each.slots - covered(shares[each.name]),
                "shares": shares[each.name],
                "down": ledger.drained.get(each.name, "") or ledger.down.get(each.name, ""),
            }
            for each in ledger.topology.switches
        ]

    def _gpus_used(self) -> Counter[str]:
        """Return the number of each server's GPUs in use. Jobs of one run use the same GPUs, in turns."""
        found: Counter[str] = Counter()
        for hold in self._ledger.holds.values():
            most: Counter[str] = Counter()
            for name, place in hold.run.places.items():
                gpus = self._ledger.submitted[name].job.gpus_per_worker
                most |= Counter({server: n * gpus for server, n in Counter(place.servers).items()})
            found += most
        return found

    def decisions(self, after: int = 0) -> Sequence[LogLine]:
        """Return the lines of the log of decisions with numbers above `after`."""
        return [LogLine(number, entry) for number, entry in self._ledger.log.after(after)]
