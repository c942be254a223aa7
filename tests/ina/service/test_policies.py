"""Policies that are read again while the service runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.core import Submitted, Tick
from controller.core.submissions import submission_of
from controller.errors import BadSpec
from controller.policies import registry
from controller.policies.by_kind import AllocationSettings
from controller.vocabulary import Job, Topology, fabrics
from ina.service.clock import Clock
from ina.service.ledger import Ledger
from ina.service.policies import Policies, read_policies
from ina.service.store import Store

CLUSTER = fabrics.leaf_spine(2, 2, 2, fabrics.Parts(gpus=2, slots=512))
PLAIN = [name for name in registry.known() if not registry.family(name)]


def ledger_of(store: Store, policies: Policies, at_s: float = 0.0, cluster: Topology = CLUSTER) -> Ledger:
    return Ledger(store, cluster, policies, Clock(0.0, at_s, wall=lambda: at_s, monotonic=lambda: 0.0))


def submit(ledger: Ledger, *names: str) -> None:
    for name in names:
        job = Job(name=name, workers=4, layers_bytes=(1_000_000,), iterations=1000, arrival_s=ledger.now_s)
        ledger.record([Submitted(ledger.now_s, submission_of(job, ledger.topology), job)])
    ledger.decide()


@pytest.mark.parametrize("policy", PLAIN)
def test_every_scheduler_can_follow_another_while_jobs_run_and_wait(policy: str, tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        ledger = ledger_of(store, Policies("fifo"))
        submit(ledger, "a", "b", "c", "d")
        assert ledger.core.running.jobs
        ledger.change(Policies(policy, AllocationSettings(memory="deadline")))
        ledger.core.handle(Tick(ledger.now_s + 1000.0))
        wanted = ledger.core.desired()
    assert wanted.runs
    with Store(tmp_path) as store:
        again = ledger_of(store, Policies(policy, AllocationSettings(memory="deadline")))
        again.recover()
        assert again.policies.scheduler == policy
        again.core.handle(Tick(1000.0))
        assert again.core.desired() == wanted
        assert len(list(store.events())) == len([*again.core.jobs]) + 2, "no event was added by the restart"


def test_what_runs_runs_on_under_other_policies(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        ledger = ledger_of(store, Policies("fifo"))
        submit(ledger, "a", "b", "c")
        before = ledger.core.desired()
        ledger.change(Policies("fifo-backfill", AllocationSettings(routing="grid", memory="static")))
        ledger.decide()
        after = ledger.core.desired()
    assert [run.number for run in after.runs] == [run.number for run in before.runs]
    assert {name: place.tree for name, place in after.places.items()} == {
        name: place.tree for name, place in before.places.items()
    }
    assert ledger.core.log is not None
    assert ledger.core.log.entries[-1].event == "memory" or any(
        entry.text.startswith("policies: scheduler fifo-backfill") for entry in ledger.core.log.entries
    )


def test_a_service_that_is_started_with_other_policies_goes_on_by_these(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        submit(ledger_of(store, Policies("fifo")), "a", "b", "c")
    with Store(tmp_path) as store:
        again = ledger_of(store, Policies("srsf"))
        again.recover()
        assert again.policies.scheduler == "srsf"
        assert len(again.core.running.jobs) == 2


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (Policies("nobody"), "policy 'nobody' is unknown"),
        (Policies("fifo", AllocationSettings(memory="all")), "memory 'all'"),
        (Policies("fifo", AllocationSettings(placement="scheduler")), "begin a new state for it"),
    ],
)
def test_policies_that_cannot_follow_change_nothing(wrong: Policies, says: str, tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        ledger = ledger_of(store, Policies("fifo"))
        submit(ledger, "a")
        before, events = ledger.core.desired(), len(list(store.events()))
        with pytest.raises(BadSpec, match=says):
            ledger.change(wrong)
        assert ledger.core.desired() == before
        assert ledger.policies == Policies("fifo")
        assert len(list(store.events())) == events


def test_a_policy_file_says_what_differs_from_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "policies.toml"
    path.write_text('scheduler = "las"\nmemory = "static"\nperiod_s = 30\nretries = 2\n')
    defaults = Policies("fifo", AllocationSettings(routing="grid"))
    assert read_policies(path, defaults) == Policies(
        "las", AllocationSettings(routing="grid", memory="static", period_s=30), retries=2
    )


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("\nschedule = 1", r"policies.toml:2: schedule: .*scheduler"),
        ("period_s = true", r"policies.toml:1: period_s = true: want seconds"),
        ("retries = -1", r"policies.toml:1: retries = -1: want a whole number"),
        ('reading = "mine"', r'policies.toml:1: reading = "mine": .*article'),
    ],
)
def test_a_wrong_policy_file_is_refused_by_line_and_key(text: str, says: str, tmp_path: Path) -> None:
    path = tmp_path / "policies.toml"
    path.write_text(text)
    with pytest.raises(BadSpec, match=says):
        read_policies(path, Policies())
