"""Captures as files, slots as told by packets, and one packet's life."""

from __future__ import annotations

import dataclasses
import itertools
import re
import struct
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from bmv2_topos.faults import Fault, LinkFault, RestartFallback, RestartJob, Straggle
from bmv2_topos.testbeds.virtual import Flow, Recorder, VirtualSettings, VirtualTestbed, build
from bmv2_topos.trace import (
    CaptureError,
    Cause,
    Event,
    IterationPath,
    Sum,
    Tenure,
    TracedJob,
    events_of,
    explain,
    read_file,
    read_files,
    tenures,
    timeline,
)
from controller.vocabulary import Job, Link, Straggler, float32_bytes
from hostlib import wire

LINK = Link("a", "b", rate_bps=10e9, delay_s=2e-6, queue_packets=2048, loss=0.01)
SLOT = "InaIngress.aggregator.slot_"
SLOT_DONE = 0x03


def jobs(preempt: bool = False) -> list[Job]:
    shape = {
        "workers": 3,
        "iterations": 2,
        "layers_bytes": float32_bytes((4096,)),
        "compute_s": 2e-5,
        "jitter": 0.5,
    }
    return [Job(name=name, preempt=preempt and name == "b", **shape) for name in "ab"]  # type: ignore[arg-type]


def run(program: str = "shared", seed: int = 1, **options: object) -> tuple[VirtualTestbed, Recorder]:
    recorder = Recorder()
    entries = jobs(preempt=bool(options.pop("preempt", False)))
    shape = options.pop("shape", None)
    network, placements = build(entries, shape, servers=program == "shared", link=LINK)  # type: ignore[arg-type]
    slots = 24 if program == "shared" else 512
    settings = VirtualSettings(program=program, lanes=32, slots=slots, seed=seed, samples=0)  # type: ignore[arg-type]
    faults = options.pop("faults", ())
    return VirtualTestbed(network, entries, placements, settings, faults, recorder=recorder), recorder  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def recorded() -> Recorder:
    testbed, recorder = run()
    testbed.run()
    return recorder


# ------------------------------------------------------------------ slots against registers and counters


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"preempt": True},
        {"shape": (2, 2), "preempt": True},
        {"program": "exclusive"},
        {"program": "exclusive", "shape": (2, 2)},
        {"faults": (RestartFallback(0.0002, "a", 0.0005), RestartJob(0.0004, "b"))},
    ],
    ids=str,
)
def test_tenures_are_what_the_registers_hold(options: dict[str, object]) -> None:
    """The slots after some steps of the fabric, as the program's own registers say."""
    exclusive, tree = options.get("program") == "exclusive", options.get("shape") is not None
    testbed, recorder = run(**options)  # type: ignore[arg-type]
    fabric = testbed.fabric
    advance, steps = fabric.advance, itertools.count()
    looked: list[tuple[int, str, int, tuple[int, int] | None]] = []

    def look() -> None:
        present = {job.admitted.generation: job.id for job in testbed.jobs.values() if job.admitted}
        for name, pipeline in fabric.pipelines.items():
            for slot in range(512 if exclusive else 24):
                read = pipeline.read_register
                job = present.get(read(f"{SLOT}generation", slot))
                if job is None:
                    continue  # left behind by a job that is gone
                bitmap = read(f"{SLOT}bitmap", slot)
                whole = read(f"{SLOT}flags", slot) & SLOT_DONE or (exclusive and bitmap.bit_count() == 3)
                holder = (job, read(f"{SLOT}psn", slot)) if bitmap and not whole else None
                looked.append((fabric.now_us * 1000, name, slot, holder))

    def stepped(now_us: int) -> None:
        advance(now_us)
        if next(steps) % 11 == 0:
            look()

    fabric.advance = stepped  # type: ignore[method-assign]
    testbed.run()
    found: dict[tuple[str, int], list[Tenure]] = defaultdict(list)
    for tenure in tenures(recorder.events()):
        found[tenure.switch, tenure.slot].append(tenure)
    for time_ns, name, slot, holder in looked:
        ends = {time for tenure in found[name, slot] for time in (tenure.from_ns, tenure.until_ns)}
        if any(end is not None and 0 <= end - time_ns < 1000 for end in ends):
            continue  # in that microsecond, before or after the look
        held = [
            (tenure.job, tenure.psn)
            for tenure in found[name, slot]
            if tenure.from_ns <= time_ns and (tenure.until_ns is None or time_ns < tenure.until_ns)
        ]
        if exclusive and tree and not held:
            continue  # full below the root, where it waits for the result
        assert held == ([] if holder is None else [holder]), (time_ns, name, slot)
    assert sum(holder is not None for *_, holder in looked) > 5
    assert sum(holder is None for *_, holder in looked) > 5


def test_what_packets_met_is_what_the_switch_has_counted() -> None:
    testbed, recorder = run(preempt=True)
    report = testbed.run()
    for job, told in zip((1, 2), report.jobs, strict=True):
        met = Counter(
            event.outcome
            for event in recorder.events()
            if event.job == job and event.inbound and event.port is not None and not event.fate
        )
        beside = {"overflow", "disagree", "evicted", "no_uplink"}
        counted = {name: number for name, number in told.outcomes.items() if number and name not in beside}
        assert dict(met) == counted


def test_an_eviction_names_who_took_the_slot() -> None:
    testbed, recorder = run(preempt=True, seed=3)
    report = testbed.run()
    found = tenures(recorder.events())
    evicted = [held for held in found if held.evicted_by is not None]
    taken = sum(job.outcomes.get("preempted", 0) + job.outcomes.get("reclaimed", 0) for job in report.jobs)
    assert taken
    assert len(evicted) == taken
    assert any(held.evicted_by and held.evicted_by.job != held.job for held in evicted)
    collided = sum(job.outcomes["collided"] for job in report.jobs)
    assert sum(len(held.attempts) for held in found) == collided


# ------------------------------------------------------------------ files


def test_files_hold_what_was_recorded(recorded: Recorder, tmp_path: Path) -> None:
    recorded.write(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} >= {"h1.pcapng", "s1-port1.pcapng"}
    assert Counter(events_of(read_files([tmp_path]))) == Counter(recorded.events())


def test_the_reader_sees_what_scapy_sees(recorded: Recorder, tmp_path: Path) -> None:
    from scapy.utils import RawPcapNgReader

    recorded.write(tmp_path)
    for file in (tmp_path / "s1-port1.pcapng", tmp_path / "h2.pcapng"):
        with RawPcapNgReader(str(file)) as reader:
            theirs = [
                ((meta.tshigh << 32) + meta.tslow, data, b"".join(meta.comments or []).decode())
                for data, meta in reader
            ]
        assert [(one.time_ns, one.frame, one.comment) for one in read_file(file)] == theirs


@pytest.mark.parametrize("order", "<>")
@pytest.mark.parametrize(("magic", "unit"), [(0xA1B2C3D4, 1000), (0xA1B23C4D, 1)])
def test_classic_files_are_read_in_both_orders(order: str, magic: int, unit: int, tmp_path: Path) -> None:
    data = struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 65535, 1)
    data += struct.pack(f"{order}IIII", 3, 7, 5, 99) + b"hello" + struct.pack(f"{order}IIII", 4, 0, 50, 50)
    path = tmp_path / "h9.pcap"
    path.write_bytes(data)
    (one,) = read_file(path)
    assert (one.time_ns, one.place, one.inbound, one.frame) == (3 * 10**9 + 7 * unit, "h9", None, b"hello")


def test_a_file_that_is_cut_off_or_being_written_is_read_so_far(
    recorded: Recorder, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    recorded.write(tmp_path)
    path = tmp_path / "s1-port1.pcapng"
    whole, data = read_file(path), path.read_bytes()
    assert caplog.messages == []
    path.write_bytes(data[:-5])
    assert read_file(path) == whole[:-1]
    (said,) = caplog.messages
    assert re.search(r"s1-port1\.pcapng: ends within a record, whose \d+ bytes are left out", said)
    classic = tmp_path / "h9.pcap"
    head = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)
    for rest in (b"\0" * 7, struct.pack("<IIII", 4, 0, 50, 50) + b"cut"):
        caplog.clear()
        classic.write_bytes(head + rest)
        assert read_file(classic) == []
        assert f"whose {len(rest)} bytes are left out" in caplog.text


@pytest.mark.parametrize("content", [b"", b"no capture at all, but text", b"\x0a\x0d\x0d"])
def test_what_is_no_capture_is_refused(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "x.pcapng").write_bytes(content)
    with pytest.raises(CaptureError, match=r"x\.pcapng: not a capture"):
        read_files([tmp_path])
    with pytest.raises(CaptureError, match="No such file"):
        read_file(tmp_path / "y.pcapng")
    (tmp_path / "empty").mkdir()
    with pytest.raises(CaptureError, match="no captures"):
        read_files([tmp_path / "empty"])


# ------------------------------------------------------------------ one packet


def told(events: list[Event]) -> list[str]:
    return [f"{step.event.place}: {step.what}" for step in timeline(events, 1, 5).steps]


def event(place: str, port: int | None, inbound: bool, kind: int, **more: object) -> Event:
    fields = {"time_ns": 0, "flags": 0, "job": 1, "psn": 5, "bitmap": 1, "fan_in": 2, "priority": 0}
    given = {**fields, "epoch": 1, "node": 0, "tag": 0, **more}
    return Event(place=place, port=port, inbound=inbound, kind=kind, **given)  # type: ignore[arg-type]


def test_a_life_is_told_in_words() -> None:
    resend = wire.FLAG_RESEND | wire.FLAG_QUERY
    life = [
        event("h1", None, False, wire.KIND_GRADIENT),
        event("s1", 1, True, wire.KIND_GRADIENT, fate="lost"),
        event("h1", None, False, wire.KIND_GRADIENT, flags=resend),
        event("s1", 1, True, wire.KIND_GRADIENT, flags=resend, outcome="aggregated", slot=9),
        event("s1", 2, True, wire.KIND_GRADIENT, bitmap=2, outcome="collided", slot=9),
        event("s1", 3, False, wire.KIND_PARTIAL, bitmap=2, waited_ns=7500),
        event("h1", None, True, wire.KIND_RESULT, bitmap=3),
        event("h1", None, True, wire.KIND_RESULT, bitmap=3, psn=6),
    ]
    assert told(life) == [
        "h1: gradient of child 0 of node 0: sent",
        "s1: gradient of child 0 of node 0: LOST on the link",
        "h1: gradient (resend+query) of child 0 of node 0: sent again",
        "s1: gradient (resend+query) of child 0 of node 0: added to slot 9",
        "s1: gradient of child 1 of node 0: slot 9 is taken: passed on to the fallback server",
        "s1: partial of child 1 of node 0: left, after 7.5 µs in the queue",
        "h1: result of node 0, 2 of 2 children counted: delivered",
    ]
    assert timeline(life, 1, 5).missing == ()


def test_what_is_not_there_is_said() -> None:
    life = [event("s1", 1, True, wire.KIND_GRADIENT)]
    said = " / ".join(timeline(life, 1, 5).missing)
    assert "no captures of hosts" in said
    assert "--pcap-notes" in said
    assert "no result" in said
    assert timeline(life, 2, 5).missing == ("no packet of this PSN was captured",)
    unknown = [event("h1", None, None, wire.KIND_RESULT)]  # type: ignore[arg-type]
    said = " / ".join(timeline(unknown, 1, 5).missing)
    assert "no captures of switches" in said
    assert "directions" in said


def test_every_packet_that_was_delivered_has_a_whole_life(recorded: Recorder) -> None:
    events = recorded.events()
    for psn in range(0, 100, 9):
        steps = timeline(events, 1, psn).steps
        delivered = [step.event.place for step in steps if step.what.endswith("delivered")]
        assert {"h1", "h2", "h3"} <= set(delivered)
        sent = [step.event.place for step in steps if step.what.endswith(": sent")]
        assert {"h1", "h2", "h3"} <= set(sent)
        times = [step.event.time_ns for step in steps]
        assert times == sorted(times)


# ---------------------------------------------------------------------------
# What made an iteration slow: a constructed case for each cause, whose verdict names it and no other.


QUIET = Link("a", "b", rate_bps=10e9, delay_s=2e-6, queue_packets=2048)


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
) -> list[IterationPath]:
    """The verdicts on the first job, of a run; all add up."""
    network, placements = build(jobs, shape, servers=True, link=QUIET, trunk=QUIET)
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
    where, port = (("h2", "s1"), "s1 port 2") if shape is None else (("h2", "s2"), "s2 port 3")
    found = verdicts(job(iterations=6), faults=(LinkFault(0.00095, where, "loss", 0.1),), shape=shape)
    assert found[0].causes == []
    slow = [verdict for verdict in found if verdict.causes]
    assert len(slow) >= 3
    for verdict in slow:
        assert verdict.causes == [Cause.LOSS]
        assert f"at {port}, lost" in verdict.words()


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
    (verdict,) = explain(events, sums, [TracedJob(1, "x", (("s1", 1), ("s1", 2)))])
    spent = {cause: time for cause, time in verdict.spent_ns.items() if time}
    assert spent == {Cause.COMPUTE: 1000, Cause.STRAGGLER: 700, Cause.NETWORK: 200}
    assert "rank 1 (s1 port 2)" in verdict.words()


def test_what_was_not_seen_is_no_reason_to_fail() -> None:
    (verdict,) = explain([], [Sum(1, 0, 0, 0, 50, 60, 100)], [TracedJob(1, "x", (("h1", None),))])
    assert sum(verdict.spent_ns.values()) == 100
