"""A simulation described by options, and sweeps of simulations: the work of ``ina sim``.

`study` turns options to sweep into a `Study`, whose function is `Simulation.varied`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, Final

from bmv2_topos.harness.rows import Value
from bmv2_topos.harness.study import Study
from bmv2_topos.scenarios.model import Scenario
from bmv2_topos.testbeds.virtual import (
    Placement,
    Recorder,
    Report,
    VirtualSettings,
    VirtualTestbed,
    build,
    random_flows,
)
from bmv2_topos.testbeds.virtual.by_policy import PolicyResults, decide
from bmv2_topos.testbeds.virtual.report import JobReport
from bmv2_topos.testbeds.virtual.testbed import Progress
from controller.policies.settings import AllocationSettings
from controller.vocabulary import CONGESTION, BadSpec, Job, Link, Topology, named, place
from controller.vocabulary.job import MAX_WINDOW
from controller.vocabulary.topology import MAX_RATE_BPS


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulation:
    """Jobs on a network in virtual time; options that are None keep the values of the job file."""

    jobs: tuple[Job, ...]
    program: str = "shared"
    lanes: int = 64
    slots: int = 8192
    seed: int = 0
    iterations: int | None = None
    window: int | None = None
    preempt: bool | None = None
    congestion: str | None = None
    tree: str | None = None
    """Children of a node at each level of the tree, root first, such as ``2x4``; None: one switch."""
    cluster: Topology | str | None = None
    """The network, or the name of a topology of the catalog, to use instead of `tree`."""
    transit: tuple[str, ...] = ()
    """Names of the switches that do not aggregate."""
    placement: str | None = None
    routing: str | None = None
    memory: str | None = None
    """`placement`, `routing` and `memory` name the policies that place jobs on `cluster`, choose their trees
    and divide slots. If all three are None, every job is spread evenly over the racks, uses shortest paths to
    one root, and may use all slots."""
    loss: float = 0.0
    link_loss: float | None = None
    """Loss probability of links between switches; None: `loss`."""
    rate_bps: float = 10e9
    delay_s: float = 2e-6
    queue_packets: int = 2048
    """`rate_bps`, `delay_s` and `queue_packets` are the properties of every link, unless the network comes
    from a file."""
    coalesce_us: int = 5
    flows: int = 0
    flow_rate_bps: float = 1e9
    """`flows` and `flow_rate_bps` describe ordinary traffic beside the jobs: the number of flows between
    random hosts, and the rate of each flow."""

    def run(self, progress: Progress | None = None, recorder: Recorder | None = None) -> Report:
        """Run the simulation and return its report.

        Raises:
            BadSpec: the options contradict each other, or do not fit the jobs.
            TestbedError: the jobs cannot run on the network, or an invariant was violated.
            softswitch.CompileError, ProgramMismatch: the program cannot be used.
        """
        return self.prepared(recorder).run(progress)

    def varied(self, seed: int = 0, **swept: Value) -> Report:
        """Run the simulation with another seed and the given values of options, by the option's name."""
        values: dict[str, Any] = {OPTIONS[name].field: value for name, value in swept.items()}
        return replace(self, seed=seed, **values).run()

    def prepared(self, recorder: Recorder | None = None) -> PreparedSimulation:
        """Return the simulation with all jobs placed, ready to run. Raises the same errors as `run`."""
        settings = VirtualSettings(
            program=self.program,
            lanes=self.lanes,
            slots=self.slots,
            seed=self.seed,
            coalesce_us=self.coalesce_us,
        )
        kinds = {"placement": self.placement, "routing": self.routing, "memory": self.memory}
        policies = {kind: name for kind, name in kinds.items() if name is not None}
        jobs = ranks = self._jobs()
        decided = None
        if self.cluster is None:
            if policies:
                policy_options = ", ".join(f"--{kind} {name}" for kind, name in policies.items())
                raise BadSpec(
                    f"{policy_options} needs a network: give --cluster FILE or --cluster NAME of a topology"
                )
            shape = None if self.tree is None else tuple(map(int, self.tree.split("x")))
            network, placements = build(
                jobs, shape, servers=settings.shares, link=self._link(), trunk=self._trunk()
            )
        elif self.tree is not None:
            raise BadSpec("--cluster and --tree are mutually exclusive")
        elif policies:
            network = self._network(self.cluster)
            allocation = AllocationSettings(
                placement=policies.get("placement", "netpack"),
                routing=policies.get("routing", "shortest-path"),
                memory=policies.get("memory", "shared" if settings.shares else "static"),
                seed=self.seed,
            )
            decided = decide(self._without_sums(network), jobs, allocation, settings)
            if not decided.ranks:
                raise BadSpec(
                    "each job fits on one server, so no packet is sent: want servers with fewer GPUs"
                )
            ranks, placements = decided.ranks, decided.placements
        else:
            network = self._network(self.cluster)
            hosts, fallback = place(network, [job.workers for job in jobs]), self._fallback(network, settings)
            placements = tuple(Placement(each, fallback) for each in hosts)
        scenario = Scenario(
            jobs=ranks,
            settings=settings,
            topology=self._without_sums(network),
            placements=placements,
            flows=tuple(random_flows(network, self.flows, self.flow_rate_bps, self.seed)),
        )
        return PreparedSimulation(jobs, scenario.testbed(recorder), decided)

    def _jobs(self) -> tuple[Job, ...]:
        given: dict[str, Any] = {
            name: value
            for name in ("iterations", "window", "preempt", "congestion")
            if (value := getattr(self, name)) is not None
        }
        return tuple(replace(job, **given) for job in self.jobs)

    def _link(self) -> Link:
        return self._of_options("all links", self.loss)

    def _trunk(self) -> Link:
        return self._of_options(
            "links between switches", self.loss if self.link_loss is None else self.link_loss
        )

    def _of_options(self, which: str, loss: float) -> Link:
        try:
            return Link("a", "b", self.rate_bps, self.delay_s, self.queue_packets, loss)
        except BadSpec as error:  # this link's name means nothing to users
            raise BadSpec(error.message.replace("link a-b", which)) from None

    def _network(self, cluster: Topology | str) -> Topology:
        """Return the network; links of a catalog topology get the properties that the options give."""
        if isinstance(cluster, Topology):
            return cluster
        found = named(cluster, link=self._link())
        loss = self._trunk().loss
        trunks = (
            replace(each, loss=loss) if each.a in found.switch and each.b in found.switch else each
            for each in found.links
        )
        return replace(found, links=tuple(trunks))

    def _fallback(self, network: Topology, settings: VirtualSettings) -> str | None:
        if not settings.shares:
            return None
        at_root = [name for name in network.servers_for("fallback") if network.rack_of[name] == network.root]
        if not at_root:
            raise BadSpec(
                f'--cluster {network.name}: no server with role = "fallback" at the root {network.root!r};'
                f" {settings.offers.title} needs a fallback server, because its jobs share slots: add one to"
                " the network, or give --program exclusive"
            )
        return at_root[0]

    def _without_sums(self, network: Topology) -> Topology:
        """Return the network in which the switches of `transit` do not aggregate. Raises BadSpec."""
        known = [switch.name for switch in network.switches]
        for name in self.transit:
            if name not in known:
                raise BadSpec(f"--transit {name}: want names of switches: {', '.join(known)}")
        switches = (
            replace(switch, slots=0) if switch.name in self.transit else switch for switch in network.switches
        )
        return replace(network, switches=tuple(switches))


@dataclass(frozen=True, slots=True)
class PreparedSimulation:
    """A simulation that is ready to run; it can run only once."""

    jobs: tuple[Job, ...]
    testbed: VirtualTestbed
    decided: PolicyResults | None = None
    """The policies' decisions about the jobs; None if the simulation names no policies."""

    def run(self, progress: Progress | None = None) -> Report:
        """Run the simulation and return its report. Raises the same errors as `VirtualTestbed.run`."""
        report = self.testbed.run(progress)
        if self.decided is None:
            return report
        by_name = {job.name: job for job in report.jobs}
        all_jobs = tuple(by_name.get(job.name) or _alone(job) for job in self.jobs)
        setup = {**report.setup, **self.decided.policies}
        return replace(report, setup=setup, jobs=all_jobs, foreseen=self.decided.foreseen)


def _alone(job: Job) -> JobReport:
    """Return the report of a job that fits on one server and so sends no packets."""
    return JobReport(
        name=job.name,
        workers=job.workers,
        start_s=job.arrival_s,
        jct_s=job.iterations * job.compute_s,
        iteration_s=(job.compute_s,) * job.iterations,
        sent_packets=0,
        resent_packets=0,
        outcomes={},
        fallback_bytes=0,
        fallback={},
        checked_elements=0,
        left_s=job.arrival_s + job.iterations * job.compute_s,
    )


# ---------------------------------------------------------------------- sweeps


@dataclass(frozen=True, slots=True)
class SimOption:
    """An option that can be swept: its field of `Simulation`, and the function that reads a value."""

    field: str
    read: Callable[[str], Value]
    """Converts the text of a value. Raises ValueError or KeyError for an invalid text."""
    wanted: str


def _within(kind: type[int] | type[float], least: float, most: float = math.inf) -> Callable[[str], Value]:
    def read(text: str) -> Value:
        value = kind(text)
        if not least <= value <= most:
            raise ValueError
        return value

    return read


def _flag(text: str) -> bool:
    return {"yes": True, "no": False}[text]


def _shape(text: str) -> str:
    if not re.fullmatch(r"[1-9]\d?(x[1-9]\d?)*", text):
        raise ValueError
    return text


def _name(text: str) -> str:
    if not text:
        raise ValueError
    return text


OPTIONS: Final[Mapping[str, SimOption]] = {
    "program": SimOption("program", _name, "names of programs, or files that end in .p4"),
    "lanes": SimOption("lanes", _within(int, 1), "32, 64 or 256"),
    "slots": SimOption("slots", _within(int, 0), "whole numbers, 0 or more"),
    "iterations": SimOption("iterations", _within(int, 1), "whole numbers, 1 or more"),
    "window": SimOption("window", _within(int, 1, MAX_WINDOW), f"whole numbers, 1 to {MAX_WINDOW}"),
    "preempt": SimOption("preempt", _flag, "yes or no"),
    "congestion": SimOption("congestion", _name, f"{', '.join(CONGESTION)}, or the name of your own rule"),
    "tree": SimOption("tree", _shape, "numbers joined by x, such as 2x4"),
    "cluster": SimOption("cluster", _name, "names of topologies of the catalog"),
    "placement": SimOption("placement", _name, "names of placement policies"),
    "routing": SimOption("routing", _name, "names of routing policies"),
    "memory": SimOption("memory", _name, "names of memory policies"),
    "loss": SimOption("loss", _within(float, 0, 1), "probabilities, 0 to 1"),
    "link-loss": SimOption("link_loss", _within(float, 0, 1), "probabilities, 0 to 1"),
    "rate": SimOption("rate_bps", _within(float, 0, MAX_RATE_BPS), "bits per second, 0 or more"),
    "delay": SimOption("delay_s", _within(float, 0, 1e6), "seconds, 0 or more"),
    "queue": SimOption("queue_packets", _within(int, 1), "whole numbers, 1 or more"),
    "coalesce": SimOption("coalesce_us", _within(int, 1), "whole microseconds, 1 or more"),
    "flows": SimOption("flows", _within(int, 0), "whole numbers, 0 or more"),
    "flow-rate": SimOption("flow_rate_bps", _within(float, 0, MAX_RATE_BPS), "bits per second, more than 0"),
}
"""The options that can be swept, by the option's name without leading dashes."""


def read_sweep(texts: Iterable[str]) -> dict[str, list[Value]]:
    """Return the values of each swept option from texts such as ``slots=16,64``, in order. Raises BadSpec.

    >>> read_sweep(["slots=16,64", "congestion=fixed,aimd"])
    {'slots': [16, 64], 'congestion': ['fixed', 'aimd']}
    """
    found: dict[str, list[Value]] = {}
    for text in texts:
        name, equals, values = text.partition("=")
        if not equals or name not in OPTIONS:
            what = f"there is no {name!r}" if equals else "want KEY=VALUE,…"
            raise BadSpec(f"--sweep {text}: {what}; keys are {', '.join(OPTIONS)}")
        if name in found:
            raise BadSpec(f"--sweep {text}: {name} is swept already; give all its values at once")
        option = OPTIONS[name]
        try:
            found[name] = [option.read(value) for value in values.split(",")]
        except (ValueError, KeyError):
            raise BadSpec(f"--sweep {text}: want {option.wanted}, separated by commas") from None
        if len(set(found[name])) < len(found[name]):
            raise BadSpec(f"--sweep {text}: a value appears twice")
    return found


def study(simulation: Simulation, sweep: Mapping[str, Sequence[Value]], seeds: int) -> Study:
    """Return a study that runs the simulation with each combination of values, and with `seeds` seeds."""
    of_jobs = {
        f"{job.name}_{field}": partial(_of_job, place, field)
        for place, job in enumerate(simulation.jobs)
        for field in ("jct_s", "aggregated_share")
    }
    return Study(
        title="Simulations",
        run=simulation.varied,
        sweep=sweep,
        seeds=seeds,
        first_seed=simulation.seed,
        measure={
            "mean_jct_s": attrgetter("mean_jct_s"),
            **of_jobs,
            "aggregated_share": attrgetter("aggregated_share"),
            "sent_packets": partial(_total, "sent_packets"),
            "resent_packets": partial(_total, "resent_packets"),
            "dropped_packets": attrgetter("dropped_packets"),
            "lost_packets": attrgetter("lost_packets"),
        },
    )


def _of_job(place: int, field: str, report: Report) -> Value:
    value: Value = getattr(report.jobs[place], field)
    return value


def _total(field: str, report: Report) -> int:
    return sum(getattr(job, field) for job in report.jobs)
