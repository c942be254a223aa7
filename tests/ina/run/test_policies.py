"""Policies that are read again while the service runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from controller.core import Cancelled, Submitted, Tick
from controller.core.compose import submission_of
from controller.errors import BadSpec
from controller.policies import registry
from controller.policies.registry import SCHEDULER
from controller.policies.scheduling import BadDecision, Submission
from controller.policies.scheduling.policy import Decision, Group, ReportedJob, View
from controller.policies.settings import AllocationSettings, default_for
from controller.vocabulary import Job, fabrics
from ina.run.clock import Clock
from ina.run.launch.files import plain, record_of
from ina.run.ledger import Ledger
from ina.run.policies import Policies, read_policies
from ina.run.store import Store
from tests.ina.run.served import Served

CLUSTER = fabrics.leaf_spine(2, 2, 2, fabrics.Parts(gpus=2, slots=512))
FIFO = Policies("fifo")
PLAIN = [name for name in registry.known() if not registry.family(name)]


@contextmanager
def ledger_in(folder: Path, policies: Policies = FIFO, *, snapshot_events: int = 5000) -> Iterator[Ledger]:
    """Have a ledger whose state is in a folder; it goes on with what is there."""
    with Store(folder) as store:
        clock = Clock(0.0, 0.0, wall=lambda: 0.0, monotonic=lambda: 0.0)
        ledger = Ledger(store, CLUSTER, policies, clock, snapshot_events=snapshot_events)
        ledger.recover()
        yield ledger


def allocation_of(policy: str, **more: str) -> AllocationSettings:
    """Return settings with which a scheduler can be asked: `joint` places jobs itself."""
    return AllocationSettings(placement=SCHEDULER if policy == "joint" else "netpack", **more)  # type: ignore[arg-type]


def submit(ledger: Ledger, *names: str) -> None:
    for name in names:
        job = Job(name=name, workers=4, layers_bytes=(1_000_000,), iterations=1000, arrival_s=ledger.now_s)
        ledger.record([Submitted(ledger.now_s, submission_of(job, ledger.topology), job)])
    ledger.decide()


@pytest.mark.parametrize("policy", PLAIN)
def test_every_scheduler_can_follow_another_while_jobs_run_and_wait(policy: str, tmp_path: Path) -> None:
    after = Policies(policy, allocation_of(policy, memory="deadline"))
    with ledger_in(tmp_path, Policies("fifo", allocation_of(policy))) as ledger:
        submit(ledger, "a", "b", "c", "d")
        assert ledger.core.running.jobs
        ledger.change(after)
        ledger.core.handle(Tick(ledger.now_s + 1000.0))
        wanted = ledger.core.desired()
    assert wanted.runs
    with ledger_in(tmp_path, after) as again:
        assert again.policies.scheduler == policy
        again.core.handle(Tick(1000.0))
        assert again.core.desired() == wanted
        assert len(list(again.store.events())) == len([*again.core.jobs]) + 2, (
            "no event was added by the restart"
        )


def test_what_runs_runs_on_under_other_policies(tmp_path: Path) -> None:
    with ledger_in(tmp_path) as ledger:
        submit(ledger, "a", "b", "c")
        before = ledger.core.desired()
        ledger.change(Policies("fifo-backfill", AllocationSettings(routing="grid", memory="static")))
        ledger.decide()
        after = ledger.core.desired()
    assert [run.number for run in after.runs] == [run.number for run in before.runs]
    assert {name: place.tree for name, place in after.places.items()} == {
        name: place.tree for name, place in before.places.items()
    }
    assert ledger.core.log.entries[-1].event == "memory" or any(
        entry.text.startswith("policies: scheduler fifo-backfill") for entry in ledger.core.log.entries
    )


def test_a_service_that_is_started_with_other_policies_goes_on_by_these(tmp_path: Path) -> None:
    with ledger_in(tmp_path) as ledger:
        submit(ledger, "a", "b", "c")
    with ledger_in(tmp_path, Policies("srsf")) as again:
        assert again.policies.scheduler == "srsf"
        assert len(again.core.running.jobs) == 2


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (Policies("nobody"), "policy 'nobody' is unknown"),
        (Policies("fifo", AllocationSettings(memory="all")), "memory 'all'"),
        (
            Policies("fifo", AllocationSettings(placement="scheduler")),
            "workers of job 'a', which another launcher",
        ),
    ],
)
def test_policies_that_cannot_follow_change_nothing(wrong: Policies, says: str, tmp_path: Path) -> None:
    with ledger_in(tmp_path) as ledger:
        submit(ledger, "a")
        before, events = ledger.core.desired(), len(list(ledger.store.events()))
        with pytest.raises(BadSpec, match=says):
            ledger.change(wrong)
        assert ledger.core.desired() == before
        assert ledger.policies == Policies("fifo")
        assert len(list(ledger.store.events())) == events


class Moody:
    """Runs all jobs, one for each GPU, unless one is called so that it cannot."""

    name = "moody"

    def decide(self, view: View) -> Decision:
        if "bad" in view.jobs:
            raise BadSpec("job 'bad' is of a kind that nobody knows")
        return Decision([Group((job,), (gpu,)) for gpu, job in enumerate(view.jobs.values())])


def test_a_policy_that_cannot_decide_leaves_what_runs_running_until_it_can(tmp_path: Path) -> None:
    with ledger_in(tmp_path) as ledger:
        ledger.core._policy = Moody()
        for name in ("a", "bad", "b"):
            job = Job(name=name, workers=1, layers_bytes=(1_000_000,), arrival_s=ledger.now_s)
            ledger.record([Submitted(ledger.now_s, submission_of(job, ledger.topology), job)])
            ledger.decide()
        assert [run.jobs for run in ledger.core.desired().runs] == [("a",)]
        assert ledger.core.policy_failure == "job 'bad' is of a kind that nobody knows"
        said = [each.text for each in ledger.core.log.entries if "cannot decide" in each.text]
        assert said == [f"moody cannot decide: {ledger.core.policy_failure}"]
        ledger.record([Cancelled(ledger.now_s, "bad")])
        ledger.decide()
        assert [run.jobs for run in ledger.core.desired().runs] == [("a",), ("b",)]
        assert ledger.core.policy_failure == ""


def test_jobs_that_share_part_of_their_gpus_want_places_of_the_scheduler() -> None:
    core = Policies("sharing:antman").core(CLUSTER)
    core.allocation.check(Decision([Group((), (0, 1), neighbours=())]))
    job = ReportedJob(Submission("a", 0.0, 2, 10), 0, 1.0, 0.0)
    with pytest.raises(BadDecision, match="placement 'netpack' does not support; placement 'scheduler' does"):
        core.allocation.check(Decision([Group((job,), (0, 1), neighbours=(job,))]))


def test_a_policy_file_says_what_differs_from_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "policies.toml"
    text = 'scheduler = "las"\nmemory = "static"\nperiod_s = 30\nretries = 2\n[settings]\nquantum_s = 60\n'
    path.write_text(text)
    defaults = Policies("fifo", AllocationSettings(routing="grid"))
    allocation = AllocationSettings(routing="grid", memory="static", period_s=30)
    found = read_policies(path, defaults)
    assert found == Policies("las", allocation, retries=2, settings=(("quantum_s", 60),))
    assert record_of(Policies, json.loads(json.dumps(plain(found)))) == found


@pytest.mark.parametrize(
    ("before", "scheduler", "placement", "routing"),
    [
        ("joint", "edf", "netpack", "ecmp-everywhere"),
        ("edf", "joint", "scheduler", "shortest-path"),
        ("edf", "fifo", "netpack", "ecmp-everywhere"),
    ],
)
def test_a_policy_file_with_a_scheduler_alone_decides_as_the_option_does(
    before: str, scheduler: str, placement: str, routing: str, tmp_path: Path
) -> None:
    path = tmp_path / "policies.toml"
    path.write_text(f'scheduler = "{scheduler}"')
    choice = default_for(8, before)
    defaults = Policies(before, AllocationSettings(placement=choice.placement, routing=choice.routing))
    assert read_policies(path, defaults).names == {
        "scheduler": scheduler,
        "placement": placement,
        "memory": "shared",
        "routing": routing,
    }


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("\nschedule = 1", r"policies.toml:2: schedule: .*scheduler"),
        ("period_s = true", r"policies.toml:1: period_s = true: want seconds"),
        ("retries = -1", r"policies.toml:1: retries = -1: want a whole number"),
        ('reading = "mine"', r'policies.toml:1: reading = "mine": .*article'),
        ("[settings]\nquantum_s = true", r"policies.toml:.: settings = .*: want a table of numbers"),
        ("[settings]\nquantums = 60", r"policies.toml:.: setting 'quantums' is unknown here"),
        (
            'scheduler = "las"\n[settings]\nquantum_s = 1e-9',
            r"policies.toml:.: setting quantum_s=1e-09: want",
        ),
    ],
)
def test_a_wrong_policy_file_is_refused_by_line_and_key(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "policies.toml"
    path.write_text(text)
    with pytest.raises(BadSpec, match=says):
        read_policies(path, Policies())


@pytest.mark.parametrize("policy", PLAIN)
def test_a_start_from_a_snapshot_decides_as_one_from_all_events(
    policy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policies = Policies(policy, allocation_of(policy, memory="deadline-lazy", routing="grid"))
    with ledger_in(tmp_path, policies, snapshot_events=1) as ledger:
        submit(ledger, "a", "b", "c")
        ledger.freeze()
        submit(ledger, "d")
        ledger.core.handle(Tick(1000.0))
        wanted = ledger.core.desired()
        assert ledger.store.last_snapshot() is not None
    taken, take_in = [], Ledger._apply
    monkeypatch.setattr(Ledger, "_apply", lambda self, body: (taken.append(body), take_in(self, body)))
    with ledger_in(tmp_path, policies) as again:
        assert len(taken) < len(list(again.store.events())), "not all events were replayed"
        again.core.handle(Tick(1000.0))
        assert again.core.desired() == wanted
        assert [*again.submitted] == ["a", "b", "c", "d"]


def test_a_snapshot_of_another_program_is_not_read(tmp_path: Path) -> None:
    with ledger_in(tmp_path) as ledger:
        submit(ledger, "a")
        wanted = ledger.core.desired()
        ledger.store.snapshot({"core": "of another program"})
        ledger.store._execute("UPDATE snapshots SET program = 'another'")
    with ledger_in(tmp_path) as again:
        assert again.core.desired() == wanted


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize(
    "wrong",
    [
        Policies("nosuch"),
        Policies(allocation=AllocationSettings(memory="nosuch")),
        Policies(settings=(("x", 1.0),)),
    ],
    ids=["scheduler", "memory", "setting"],
)
def test_wrong_policies_leave_a_state_as_it_was(wrong: Policies, begun: bool, tmp_path: Path) -> None:
    """A controller that was first started with a typing error could once never use its state again."""
    if begun:
        with ledger_in(tmp_path) as ledger:
            submit(ledger, "a")
    with pytest.raises(BadSpec), ledger_in(tmp_path, wrong):
        pass
    with ledger_in(tmp_path, Policies("srtf")) as again:
        assert again.policies.scheduler == "srtf"
        assert [*again.submitted] == ["a"] * begun


async def test_a_scheduler_that_places_jobs_is_reached_by_a_reload_and_left_again(served: Served) -> None:
    """All jobs start again from where they have saved, on GPUs of the policies of now; also after a kill."""
    daemon = served.daemon
    for name in ("a", "b", "c"):
        served.world.iterations[name] = 2000
        await daemon.submit([Job(name=name, workers=2, command=("train",), iterations=2000)])
    for placement, scheduler in (("scheduler", "joint"), ("netpack", "fifo"), ("scheduler", "fifo")):
        await served.until(lambda: any(each.state == "running" for each in served.daemon.reports.records()))
        settings = AllocationSettings(placement=placement, memory="shared")
        served.policies = Policies(scheduler, settings)
        await served.daemon.reload(served.policies)
        await served.again()
        assert served.daemon.reports.cluster([], operates=True)["policies"]["placement"] == placement
    await served.until(lambda: all(each.over for each in served.daemon.reports.records()), 2000.0)
    assert {each.state for each in served.daemon.reports.records()} == {"completed"}
    assert served.world.completed == {"a": 1, "b": 1, "c": 1}
    await served.clean()
