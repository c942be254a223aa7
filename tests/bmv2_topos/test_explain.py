"""What made an iteration slow: a constructed case for each cause, whose verdict names it and no other."""

from __future__ import annotations

import dataclasses

import pytest

from bmv2_topos.faults import Fault, LinkFault, RestartFallback, RestartJob, Straggle
from bmv2_topos.testbeds.virtual import Flow, Recorder, VirtualSettings, VirtualTestbed, build
from bmv2_topos.trace import Cause, Event, JobFacts, Sum, Verdict, explain
from controller.vocabulary import Job, Link, Straggler, float32_bytes
from hostlib import wire

LINK = Link("a", "b", rate_bps=10e9, delay_s=2e-6, queue_packets=2048)


def job(name: str = "a", **more: object) -> Job:
    given = {
        "workers": 3,
        "iterations": 4,
        "layers_bytes": float32_bytes((4096, 4096)),
        "compute_s": 0.0003,
        **more,
    }
    return Job(name=name, **given)  # type: ignore[arg-type]


HOLDER = job(
    "b", iterations=1, layers_bytes=float32_bytes((8192,)), straggler=Straggler(rank=1, compute_s=0.02)
)
"""Its other ranks' packets hold all slots until its straggler comes."""
SMALL = VirtualSettings(slots=64, max_age_s=1.0, samples=0)


def verdicts(
    *jobs: Job,
    settings: VirtualSettings | None = None,
    faults: tuple[Fault, ...] = (),
    flows: tuple[Flow, ...] = (),
    shape: tuple[int, ...] | None = None,
) -> list[Verdict]:
    """The verdicts on the first job, of a run; all add up."""
    network, placements = build(jobs, shape, servers=True, link=LINK, trunk=LINK)
    recorder = Recorder()
    settings = settings or VirtualSettings(samples=0)
    VirtualTestbed(network, jobs, placements, settings, faults, flows=flows, recorder=recorder).run()
    found = [verdict for verdict in recorder.explain() if verdict.job == jobs[0].name]
    assert [verdict.iteration for verdict in found] == list(range(jobs[0].iterations))
    for verdict in found:
        assert sum(verdict.spent_ns.values()) == verdict.until_ns - verdict.from_ns
        assert [piece.from_ns for piece in verdict.pieces[1:]] == [p.until_ns for p in verdict.pieces[:-1]]
    return found


def test_when_nothing_goes_wrong_nothing_is_blamed() -> None:
    for verdict in verdicts(job()):
        assert verdict.causes == []
        spent = verdict.spent_ns
        assert spent[Cause.COMPUTE] == pytest.approx(300_000, rel=0.03)
        assert spent[Cause.COMPUTE] + spent[Cause.NETWORK] == verdict.until_ns - verdict.from_ns
        assert verdict.words().startswith("nothing in particular: computing")


@pytest.mark.parametrize("shape", [None, (2, 2)])
def test_a_straggler(shape: tuple[int, ...] | None) -> None:
    found = verdicts(job(straggler=Straggler(rank=2, compute_s=0.001)), shape=shape)
    for verdict in found:
        assert verdict.causes == [Cause.STRAGGLER]
        assert verdict.spent_ns[Cause.STRAGGLER] == pytest.approx(700_000, rel=0.03)
        assert "rank 2 (h3)" in verdict.words()


def test_a_rank_that_straggles_once_is_named_for_that_iteration() -> None:
    begins, ends = Straggle(0.0005, "a", 1, 0.002), Straggle(0.0015, "a", 1, 0.0003)
    found = verdicts(job(iterations=5), faults=(begins, ends))
    named = [verdict.iteration for verdict in found if verdict.causes]
    assert 0 < len(named) < 4
    for number in named:
        assert found[number].causes == [Cause.STRAGGLER]
        assert "rank 1 (h2)" in found[number].words()


@pytest.mark.parametrize("shape", [None, (2, 2)])
def test_loss(shape: tuple[int, ...] | None) -> None:
    where = ("h2", "s1") if shape is None else ("h2", "s2")
    found = verdicts(job(iterations=6), faults=(LinkFault(0.00095, where, "loss", 0.1),), shape=shape)
    assert found[0].causes == []
    slow = [verdict for verdict in found if verdict.causes]
    assert len(slow) >= 3
    for verdict in slow:
        assert verdict.causes == [Cause.LOSS]
        assert "h2" in verdict.words()
        assert "lost" in verdict.words()


@pytest.mark.parametrize(("name", "said"), [("b", "job b"), ("job 7", "job 7")])
def test_collisions(name: str, said: str) -> None:
    found = verdicts(job(arrival_s=0.001), dataclasses.replace(HOLDER, name=name), settings=SMALL)
    for verdict in found:
        assert verdict.causes == [Cause.COLLISIONS]
        assert f"was held by {said}" in verdict.words()


def test_a_slow_server() -> None:
    down = RestartFallback(0.0012, "a", 0.01)
    found = verdicts(job(arrival_s=0.001), HOLDER, settings=SMALL, faults=(down,))
    assert found[0].causes == [Cause.SERVER]
    assert "did not answer" in found[0].words()
    assert [verdict.causes for verdict in found[1:]] == [[Cause.COLLISIONS]] * 3


def test_a_queue() -> None:
    crossing = Flow(source="p1", target="h2", rate_bps=9e9, start_s=0.0008)
    found = verdicts(job(iterations=6), flows=(crossing,))
    assert found[0].causes == []
    slow = [verdict for verdict in found if verdict.causes]
    assert len(slow) >= 3
    for verdict in slow:
        assert verdict.causes == [Cause.QUEUE]
        assert "at s1 port 2" in verdict.words()


def test_jobs_that_start_again_and_trees_with_everything_have_verdicts_that_add_up() -> None:
    entries = (
        job(layers_bytes=float32_bytes((512, 2048)), jitter=0.3),
        job("b", layers_bytes=float32_bytes((1024,)), preempt=True),
    )
    lossy = LinkFault(0.0002, ("s1", "s2"), "loss", 0.02)
    again = RestartJob(0.0006, "a", 0.0002)
    found = verdicts(*entries, settings=SMALL, faults=(lossy, again), shape=(2, 2))
    assert len(found) == 4


def test_hosts_seen_at_the_switch_only_will_do() -> None:
    """By hand: rank 1 sends 700 ns after rank 0, as seen at the ports of the switch."""

    def seen(time_ns: int, port: int, *, inbound: bool, kind: int, outcome: str | None = None) -> Event:
        return Event(time_ns, "s1", port, inbound, kind, 0, 1, 0, 1, 2, 0, 1, 0, 0, outcome=outcome)

    events = [
        seen(1000, 1, inbound=True, kind=wire.KIND_GRADIENT, outcome="aggregated"),
        seen(1700, 2, inbound=True, kind=wire.KIND_GRADIENT, outcome="completed"),
        seen(1800, 1, inbound=False, kind=wire.KIND_RESULT),
        seen(1801, 2, inbound=False, kind=wire.KIND_RESULT),
    ]
    sums = [Sum(1, 0, 0, 0, 1000, 1000, 1900), Sum(1, 0, 0, 1, 1700, 1700, 1900)]
    (verdict,) = explain(events, sums, [JobFacts(1, "x", (("s1", 1), ("s1", 2)))])
    spent = {cause: time for cause, time in verdict.spent_ns.items() if time}
    assert spent == {Cause.COMPUTE: 1000, Cause.STRAGGLER: 700, Cause.NETWORK: 200}
    assert "rank 1 (s1 port 2)" in verdict.words()


def test_what_was_not_seen_is_no_reason_to_fail() -> None:
    (verdict,) = explain([], [Sum(1, 0, 0, 0, 50, 60, 100)], [JobFacts(1, "x", (("h1", None),))])
    assert sum(verdict.spent_ns.values()) == 100
