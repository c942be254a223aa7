"""A cluster that changes under its jobs: nothing is on what has left, and nobody moves without need."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from controller.core import Core, Desired, Log, Rules, ServerGone, Submitted, SwitchGone, Tick
from controller.core.compose import (
    keep_gpu_numbers,
    network_policies,
    servers_of,
    setup_of,
    submission_of,
)
from controller.core.events import compare
from controller.errors import BadSpec
from controller.policies.family import Setup
from controller.policies.settings import AllocationSettings
from controller.vocabulary import Cluster, Job, Link, Server, Topology, fabrics
from controller.vocabulary.graphs import check_pinned, pinned
from tests import effort
from tests.clusters import without

RULES = Rules(reported=True, sharing=4, retries=0, tolerates_failures=True)
WHOLE = pinned(fabrics.leaf_spine(2, 3, 2, fabrics.Parts(gpus=2, slots=512)))
"""spine1 and spine2; leaf1 to leaf3, with h1 and h2, h3 and h4, h5 and h6."""


def at_once(setup: Setup) -> Setup:
    """Return a scheduler that decides whenever something happens, as under the service."""
    return replace(setup, interval_s=0.0)


class Bed:
    """A core, and what has been decided."""

    def __init__(
        self, cluster: Topology = WHOLE, scheduler: str = "fifo", placement: str = "netpack"
    ) -> None:
        self.settings = AllocationSettings(placement=placement, memory="shared")
        self.scheduler = scheduler
        parts = network_policies(cluster, scheduler, self.settings)
        setup = at_once(parts.setup)
        self.core = Core(parts.servers, setup, allocation=parts.allocation, rules=RULES, log=Log())
        self.now_s = 0.0
        self.cluster = cluster

    def submit(self, job: Job) -> None:
        job = replace(job, arrival_s=self.now_s)
        self.core.handle(Submitted(self.now_s, submission_of(job, self.cluster), job))

    def tick(self) -> Desired:
        self.now_s += 1.0
        self.core.handle(Tick(self.now_s))
        while self.core.next_s <= self.now_s:
            self.core.handle(Tick(self.now_s))
        return self.core.desired()

    def change(self, cluster: Topology) -> Desired:
        self.core.handle(Tick(self.now_s))
        servers = keep_gpu_numbers(self.core.servers, servers_of(cluster, self.settings))
        self.core.change_cluster(cluster, servers, at_once(setup_of(servers, self.scheduler, self.settings)))
        self.cluster = cluster
        return self.tick()

    def ends(self) -> dict[str, str]:
        return {each.job.spec.name: f"{each.outcome}: {each.reason}" for each in self.core.finished_jobs}

    def texts(self, name: str) -> list[str]:
        assert self.core.log is not None
        return [f"{each.event}: {each.text}" for each in self.core.log.entries if name in each.jobs]


def job(name: str, workers: int, **keys: object) -> Job:
    return Job(name=name, workers=workers, iterations=1000, layers_bytes=(1000,), **keys)  # type: ignore[arg-type]


def begun(*jobs: Job) -> tuple[Bed, Desired]:
    """Return a bed to which these jobs were submitted, and what is wanted then."""
    bed = Bed()
    for each in jobs:
        bed.submit(each)
    return bed, bed.tick()


def check(cluster: Topology, desired: Desired) -> None:
    """All that is to run is on servers, switches and links that are there, and within their GPUs."""
    used: Counter[str] = Counter()
    for run in desired.runs:
        most: Counter[str] = Counter()  # jobs of a run take turns on their GPUs
        for name in run.jobs:
            most |= Counter(desired.places[name].servers)
        used += most
    for place in desired.places.values():
        tree = place.tree
        if tree is None:
            continue
        assert {*tree.switches} <= cluster.switch.keys()
        assert {*place.regions} <= {*tree.switches}
        for child, parent in tree.parents.items():
            assert parent in cluster.neighbours[child]
        for server in place.servers:
            assert cluster.rack_of[server] in tree.switches
        assert place.fallback is None or place.fallback in cluster.server
        for switch, region in place.regions.items():
            assert region.end <= cluster.switch[switch].slots
    for server, gpus in used.items():
        assert gpus <= cluster.server[server].gpus, (server, used)
    taken = [gpu for run in desired.runs for gpu in run.gpus]
    assert len({*taken}) == len(taken)


def test_a_job_whose_server_leaves_starts_elsewhere_and_others_stay() -> None:
    bed, before = begun(job("stays", 2, servers=("h1", "h2"), fallback="h6"), job("moves", 2))
    victim = before.places["moves"].servers[0]
    after = bed.change(without(WHOLE, [victim]))
    assert after.places["stays"] == before.places["stays"]
    assert [run.number for run in after.runs if "stays" in run.jobs] == [
        run.number for run in before.runs if "stays" in run.jobs
    ]
    assert victim not in after.places["moves"].servers
    assert f"interrupted: server {victim!r} has left the cluster" in bed.texts("moves")


def test_a_job_whose_switch_leaves_gets_another_tree_and_goes_on() -> None:
    bed, before = begun(job("wide", 3, servers=("h1", "h3", "h5")))
    tree = before.places["wide"].tree
    assert tree is not None
    (spine,) = {"spine1", "spine2"} & {*tree.switches}
    after = bed.change(without(WHOLE, [spine]))
    other = after.places["wide"].tree
    assert other is not None
    assert spine not in other.switches
    assert after.places["wide"].servers == ("h1", "h3", "h5")
    # the same run: its workers start again, with what they have saved
    assert [run.number for run in after.runs] == [run.number for run in before.runs]
    assert not [text for text in bed.texts("wide") if text.startswith("interrupted")]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda server: replace(server, ip="10.9.9.9"), 'server \'h1\': ip = "10.9.9.9", was "10.0.0.1"'),
        (lambda server: replace(server, gpus=1), "server 'h1': gpus = 1, was 2"),
    ],
)
def test_a_server_that_is_another_one_now_has_its_workers_start_again(change: object, reason: str) -> None:
    bed, _ = begun(job("there", 2, servers=("h1", "h3")))
    changed = tuple(change(each) if each.name == "h1" else each for each in WHOLE.servers)  # type: ignore[operator]
    after = bed.change(replace(WHOLE, servers=changed))
    assert f"interrupted: {reason}" in bed.texts("there")
    assert after.places["there"].servers == ("h1", "h3")


def test_a_port_that_is_another_one_has_the_workers_behind_it_start_again() -> None:
    bed, before = begun(job("there", 2, servers=("h1", "h3")), job("beside", 2, servers=("h5", "h6")))

    def moved(link: Link) -> Link:
        if "h1" not in (link.a, link.b):
            return link
        return replace(link, **{f"{'a' if link.a == 'leaf1' else 'b'}_port": 99})  # type: ignore[arg-type]

    after = bed.change(replace(WHOLE, links=tuple(map(moved, WHOLE.links))))
    (text,) = [text for text in bed.texts("there") if text.startswith("interrupted")]
    assert "port 99 of leaf1, was" in text
    assert after.places["beside"] == before.places["beside"]


def test_a_rate_that_changes_moves_nobody() -> None:
    bed, before = begun(job("there", 2, servers=("h1", "h3")))
    links = tuple(replace(link, rate_bps=1e9) for link in WHOLE.links)
    after = bed.change(replace(WHOLE, links=links))
    assert after.runs == before.runs
    assert bed.core.log is not None
    notes = [each.text for each in bed.core.log.entries if each.text.startswith("cluster: link")]
    assert len(notes) == len(WHOLE.links)
    assert notes[0].endswith("rate_bps = 1000000000.0, was 100000000000.0")


def test_a_job_that_the_cluster_has_no_room_for_any_more_has_failed_and_can_be_retried() -> None:
    bed, _ = begun(job("wide", 12), job("named", 1, servers=("h1",)), job("small", 1))
    bed.change(without(WHOLE, ["h1"]))
    ends = bed.ends()
    assert ends.keys() == {"wide", "named"}
    assert "12 workers of 1 GPU each; the cluster has 10 GPUs" in ends["wide"]
    assert "there is no server 'h1'" in ends["named"]
    desired = bed.tick()
    assert desired.waiting == ()
    assert "small" in desired.places
    with pytest.raises(BadSpec, match="the cluster has 10 GPUs"):
        bed.core.check_fits("wide")
    bed.change(WHOLE)
    bed.core.check_fits("wide")


def test_a_job_larger_than_the_cluster_is_now_is_refused() -> None:
    bed = Bed()
    wide = job("wide", 12)
    spec = submission_of(wide, WHOLE)
    bed.change(without(WHOLE, ["h1"]))
    with pytest.raises(BadSpec, match="asks for 12 GPUs; the cluster has 10"):
        bed.core.admit(spec)


def test_new_servers_are_used_by_jobs_that_wait() -> None:
    few = without(WHOLE, ["h3", "h4", "h5", "h6"])
    bed = Bed(few)
    bed.submit(job("first", 4))
    bed.submit(job("second", 4))
    assert bed.tick().waiting == ("second",)
    after = bed.change(WHOLE)
    assert after.waiting == ()
    assert not {"h1", "h2"} & {*after.places["second"].servers}


def test_what_has_left_is_not_down_any_more() -> None:
    bed = Bed()
    bed.core.handle(ServerGone(0.0, "h1"))
    bed.core.handle(SwitchGone(0.0, "spine1"))
    bed.change(without(WHOLE, ["h1", "spine1"]))
    bed.submit(job("wide", 10))
    assert bed.tick().waiting == ()
    with pytest.raises(BadSpec, match="no server 'h1'"):
        bed.core.handle(ServerGone(bed.now_s, "h1"))


def test_gpus_keep_their_numbers_where_the_scheduler_places_jobs() -> None:
    two, four = Server("a", 2), Server("b", 4)
    assert keep_gpu_numbers(Cluster((two, four)), Cluster((four,))).servers == (two, four)
    assert keep_gpu_numbers(Cluster((two, four)), Cluster((Server("c", 1), four))).servers == (
        two,
        four,
        Server("c", 1),
    )
    with pytest.raises(BadSpec, match=r"server 'a': gpus = 8, was 2; with placement 'scheduler'"):
        keep_gpu_numbers(Cluster((two, four)), Cluster((Server("a", 8), four)))


def test_a_file_that_says_the_same_changes_nothing() -> None:
    assert compare(WHOLE, WHOLE).notes == ()
    assert compare(fabrics.star(3), pinned(fabrics.star(3))).notes == ()


def test_addresses_are_to_be_given() -> None:
    check_pinned(WHOLE)
    with pytest.raises(BadSpec, match="server 'h1': ip is missing"):
        check_pinned(fabrics.star(2))
    first, *others = WHOLE.servers
    with pytest.raises(BadSpec, match="server 'h1': mac is missing"):
        check_pinned(replace(WHOLE, servers=(replace(first, mac=""), *others)))
    for missing, what in (("a_port", "link leaf1-spine1: a_port"), ("b_port", "server 'h1': port")):
        loose = tuple(replace(link, **{missing: 0}) for link in WHOLE.links)
        with pytest.raises(BadSpec, match=f"{what} is missing: the port of switch 'leaf1' that leads to"):
            check_pinned(replace(WHOLE, links=loose))


NODES = [each.name for each in (*WHOLE.switches, *WHOLE.servers)]


@settings(deadline=None, max_examples=effort.cases(60))
@given(
    st.sampled_from(
        [("fifo", "netpack"), ("srsf", "random"), ("fifo", "scheduler"), ("muri-s", "scheduler")]
    ),
    st.integers(0, 10_000),
)
@example(("muri-s", "scheduler"), 3)
def test_random_changes_leave_nothing_on_what_has_left(by: tuple[str, str], seed: int) -> None:
    """Servers and switches come and go, and change their memory; jobs that do not fit fail."""
    rng = random.Random(seed)
    bed = Bed(WHOLE, *by)
    jobs: dict[str, Job] = {}
    for step in range(12):
        for at in range(rng.randint(0, 2)):
            new = job(f"j{step}.{at}", rng.randint(1, 4), aggregate=rng.random() < 0.8)
            try:
                bed.submit(new)
            except BadSpec:  # the cluster of now is too small
                continue
            jobs[new.name] = new
        while True:
            gone = [name for name in NODES if rng.random() < 0.15]
            try:
                cluster = without(WHOLE, gone)
                if cluster.gpus:
                    break
            except (BadSpec, IndexError):  # not connected, or nothing left
                continue
        if rng.random() < 0.3:
            slots = rng.choice([64, 512])
            cluster = replace(
                cluster, switches=tuple(replace(each, slots=slots) for each in cluster.switches)
            )
        desired = bed.change(cluster)
        check(cluster, desired)
        for name, reason in bed.ends().items():
            assert "does not fit the changed cluster" in reason, (name, reason)
    final = bed.change(WHOLE)
    check(WHOLE, final)
    assert {*final.places, *final.waiting} == jobs.keys() - bed.ends().keys()
    assert final.places or not bed.core.jobs
