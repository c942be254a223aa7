"""Scenarios: read from files, judged, and refused by runners that cannot carry them."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from bmv2_topos.faults import Congest
from bmv2_topos.scenarios import (
    Check,
    JobOutcome,
    Outcome,
    check_results,
    find_scenario,
    parse_scenario,
    shipped,
)
from bmv2_topos.testbeds.netns import Unsupported
from bmv2_topos.trace import LogError, explain, missing_captures, read_file, read_run
from bmv2_topos.trace.runs import run_records
from controller.vocabulary import BadSpec, Link, Server, Switch, Topology, leaf_spine, star, tree
from ina.run.scenarios import runner_of

TEXT = """
summary = "a job"
topology = "single-switch:2"
link_defaults = { rate_bps = 1e9 }

[[job]]
name = "a"
workers = 2
slots = 64
layers_bytes = [400]
iterations = 2
compute_s = 0.0001
"""
LOSS = """
[[fault]]
kind = "loss"
link = ["s1", "h2"]
value = 0.5
"""
KILL = """
[[fault]]
kind = "kill"
job = "a"
rank = 1
iteration = 1
"""


MOVE = """
[[fault]]
kind = "region"
job = "a"
at_s = 0.002
offset = 32
size = 16
"""


def test_every_scenario_that_comes_along_is_read() -> None:
    assert set(shipped()) == {"killed-worker", "lossy-link", "straggler", "two-jobs"}
    for name in shipped():
        assert find_scenario(name).name == name


def test_faults_of_links_become_properties_of_these_links_alone() -> None:
    network = parse_scenario(TEXT + LOSS).network
    assert [link.loss for link in network.links] == [0.0, 0.5, 0.0]
    assert {link.rate_bps for link in network.links} == {1e9}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (TEXT.replace("single-switch:2", "ring"), r"scenario.toml:3: topology: .*ring"),
        (TEXT.replace("slots = 64", ""), "scenario.toml:6: job 'a': slots is missing"),
        (TEXT.replace("rate_bps", "speed"), "scenario.toml:4: link_defaults: unknown key 'speed'"),
        (
            TEXT + LOSS.replace("h2", "h9"),
            r"scenario.toml:16: fault: link = \['s1', 'h9'\]: there is no such",
        ),
        (
            TEXT + LOSS.replace("0.5", "5"),
            "scenario.toml:17: fault: value = 5: want a probability, from 0 to 1",
        ),
        (TEXT + KILL.replace("rank = 1", "rank = 2"), "scenario.toml:17: fault: rank = 2: the job has ranks"),
        (TEXT + KILL.replace('"a"', '"b"'), "scenario.toml:16: unknown job 'b'"),
        (TEXT + KILL + "at_s = 0.1\n", "scenario.toml:19: fault: at_s does not go with kind = 'kill'"),
        (TEXT + LOSS + "job = 'a'\n", "scenario.toml:18: fault: job does not go with kind = 'loss'"),
        (TEXT + MOVE.replace("size = 16", ""), "scenario.toml:14: fault: size is missing"),
        (TEXT + MOVE + 'switch = "s2"\n', "scenario.toml:20: unknown switch 's2'; known are s1"),
        (
            TEXT + '[[check]]\njob = "a"\nmetric = "x"',
            "scenario.toml:13: check: want the key metric with least or",
        ),
        (TEXT + '[[check]]\njob = "a"\nmost = "x"', 'scenario.toml:15: check: most = "x": want a number'),
        ("summary = 1", "scenario.toml:1: summary = 1: want 1 to 200 printable characters in quotes"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, message: str) -> None:
    with pytest.raises(BadSpec, match=message):
        parse_scenario(text)


def test_a_name_that_is_none_is_told_what_there_is() -> None:
    with pytest.raises(BadSpec, match="no scenario 'stragler'; did you mean 'straggler'"):
        find_scenario("stragler")


@pytest.mark.parametrize("name", sorted(set(shipped()) - {"killed-worker"}))
def test_every_scenario_passes_in_virtual_time(name: str) -> None:
    scenario = find_scenario(name)
    outcome = runner_of("virtual").run(scenario)
    assert [verdict for verdict in check_results(scenario, outcome) if not verdict.good] == []
    again = runner_of("virtual").run(scenario)
    assert replace(again, elapsed_s=0.0) == replace(outcome, elapsed_s=0.0)


def test_a_run_that_cannot_end_fails_with_its_reason() -> None:
    scenario = parse_scenario(
        TEXT.replace("link_defaults =", "limit_s = 0.01\nlink_defaults =") + LOSS.replace("0.5", "1")
    )
    outcome = runner_of("virtual").run(scenario)
    (verdict,) = check_results(scenario, outcome)
    assert not verdict.good
    assert "after 0.01 s of virtual time" in verdict.found


def happening(text: str) -> JobOutcome:
    """Return what becomes of the job in virtual time where this fault happens while it runs."""
    (job,) = runner_of("virtual").run(parse_scenario(TEXT + text)).jobs
    return job


def test_a_link_loses_packets_for_a_while_of_a_scenario() -> None:
    lossy = happening(LOSS + "at_s = 0.0\nfor_s = 0.001\n")
    assert lossy.metrics["resent_packets"] > 0
    assert lossy.iterations == happening("").iterations
    late = happening(LOSS + "at_s = 100.0\n")
    assert late == happening("")


def test_faults_of_jobs_in_a_scenario_happen_in_virtual_time() -> None:
    fault = '[[fault]]\nkind = "{}"\njob = "a"\nat_s = {}\n'.format
    whole = happening("")
    slow = happening(fault("straggle", 0.0001) + "rank = 1\ncompute_s = 0.03\n")
    assert slow.iteration_s > 0.01 > whole.iteration_s
    assert slow.iterations == whole.iterations
    assert happening(fault("remove-job", 0.0001)).iterations < whole.iterations
    again = happening(fault("restart-job", 0.0001) + "down_s = 0.001\n")
    assert again.iterations == whole.iterations
    assert again != whole


@pytest.mark.parametrize(
    ("call", "why"),
    [
        (
            lambda: runner_of("loopback").check(parse_scenario(TEXT + MOVE)),
            r"ChangeRegion.*only virtual time has such faults while jobs run",
        ),
        (
            lambda: runner_of("virtual").check(
                parse_scenario(TEXT + LOSS.replace('"loss"', '"rate_bps"') + "at_s = 0.1\n")
            ),
            "rate_bps of the link s1-h2: while jobs run, virtual time changes",
        ),
        (
            lambda: runner_of("virtual").check(
                replace(parse_scenario(TEXT), faults=(Congest(0.0, "s1", 1.0),))
            ),
            "only the soak supports such faults",
        ),
        (
            lambda: runner_of("virtual").run(parse_scenario(TEXT + KILL)),
            "kill of rank 1 of job 'a': virtual time has no processes",
        ),
        (
            lambda: runner_of("loopback", "bmv2").check(parse_scenario(TEXT)),
            "bmv2 needs network interfaces: loopback has none",
        ),
        (lambda: runner_of("virtual", "bmv2"), "bmv2 does not run in virtual time: want embedded"),
    ],
)
def test_runners_refuse_what_they_cannot_carry(call: Callable[[], object], why: str) -> None:
    with pytest.raises(Unsupported, match=why):
        call()


@pytest.mark.parametrize(
    ("check", "good"),
    [
        (Check("a", "sent_packets", least=10), True),
        (Check("a", "sent_packets", most=9), False),
        (Check("a", "resent_share", least=0.1, most=0.3), True),
        (Check("a", "iteration_s", most=1e-3), False),
        (Check("a", "switch_collided_packets", least=1), False),
        (Check("a", fails="rank 1"), False),
    ],
)
def test_checks_hold_or_do_not(check: Check, good: bool) -> None:
    scenario = replace(parse_scenario(TEXT), checks=(check,))
    counted = {"sent_packets": 10.0, "resent_packets": 2.0}
    job = JobOutcome(name="a", failure=None, iterations=2, iteration_s=0.01, metrics=counted)
    outcome = Outcome(runner="virtual", target="embedded", jobs=(job,), elapsed_s=1.0)
    assert check_results(scenario, outcome)[-1].good is good


def test_a_job_that_is_to_fail_must() -> None:
    scenario = replace(parse_scenario(TEXT), checks=(Check("a", fails="rank 1"),))
    for failure, good in (("rank 1 died", True), ("rank 0 died", False)):
        job = JobOutcome(name="a", failure=failure, iterations=0, iteration_s=0.0, metrics={})
        outcome = Outcome(runner="loopback", target="embedded", jobs=(job,), elapsed_s=1.0)
        assert [verdict.good for verdict in check_results(scenario, outcome)] == [good]


# ---------------------------------------------------------------------------
# Logs of real runs, for what made them slow.


START = {
    "event": "start",
    "time": 9.0,
    "job": 7,
    "name": "a",
    "workers": 2,
    "ports": ["s1/1", "s2/4"],
    "server": "s1/9",
}


def collective(rank: int, number: int, end: float, took: float) -> dict[str, object]:
    fields = {"event": "collective", "job": 7, "error": None}
    return {**fields, "rank": rank, "number": number, "time": end, "time_s": took}


def test_a_log_tells_who_was_where_and_summed_what_when() -> None:
    broken = collective(1, 1, 13.0, 0.5) | {"error": "PeerLost"}
    facts, sums = run_records([START, collective(0, 0, 11.0, 1.0), collective(1, 0, 11.5, 0.25), broken])
    assert [(job.name, job.workers, job.server_port) for job in facts] == [
        ("a", (("s1", 1), ("s2", 4)), ("s1", 9))
    ]
    assert facts[0].start_ns == 10_000_000_000
    assert [(one.rank, one.begin_ns, one.end_ns) for one in sums] == [
        (0, 10_000_000_000, 11_000_000_000),
        (1, 11_250_000_000, 11_500_000_000),
    ]
    assert missing_captures(facts, [(7, ("s1", 1)), (8, ("s2", 4))]) == ["job 7 at s2/4"]


def test_a_rank_that_calls_late_is_a_straggler() -> None:
    lines = [START, *(collective(rank, 0, 11.0, 1.0) for rank in (0, 1))]
    lines += [collective(0, 1, 12.0, 0.9), collective(1, 1, 12.01, 0.11)]
    facts, sums = run_records(lines)
    _, late = explain([], sums, facts)
    assert late.words().startswith("straggler")
    assert "rank 1 (s2 port 4), 800,000 µs late" in late.words()


@pytest.mark.parametrize("text", ["no json", "[1]", '{"event": "start"}', json.dumps(START)[:-2]])
def test_what_is_no_log_is_refused(text: str, tmp_path: Path) -> None:
    (tmp_path / "x.log").write_text(text)
    with pytest.raises(LogError, match=r"x\.log: not the log of a run \(ina run --log"):
        read_run(tmp_path / "x.log")


def test_a_log_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"x\.log: No such file"):
        read_run(tmp_path / "x.log")


def test_files_of_bmv2_tell_port_and_direction(tmp_path: Path) -> None:
    header = bytes.fromhex("d4c3b2a1020004000000000000000000ffff000001000000")
    record = bytes.fromhex("01000000020000000400000004000000") + b"abcd"
    for direction, inbound in (("in", True), ("out", False)):
        file = tmp_path / f"s1-eth3_{direction}.pcap"
        file.write_bytes(header + record)
        (found,) = read_file(file)
        assert (found.place, found.inbound, found.time_ns) == ("s1/3", inbound, 1_000_002_000)


S1, S2, H1, H2 = Switch("s1"), Switch("s2"), Server("h1"), Server("h2")


def test_a_tree_has_its_racks_and_numbers_ports_in_the_order_of_links() -> None:
    topology = tree([2, 4], servers=1)
    assert [switch.name for switch in topology.switches] == ["s1", "s2", "s3"]
    assert [topology.rack_of[f"h{n}"] for n in range(1, 9)] == ["s2"] * 4 + ["s3"] * 4
    assert topology.rack_of["p1"] == "s1"
    assert topology.parents["s3"] == "s1"
    assert topology.parents["s1"] is None
    assert [topology.port_to("s1", name) for name in ("s2", "s3", "p1")] == [1, 2, 3]
    assert [topology.port_to("s3", name) for name in ("s1", "h5", "h8")] == [1, 2, 5]


def test_hosts_have_addresses_of_their_own() -> None:
    topology = star(300)
    assert topology.mac("h1") == "02:00:00:00:00:01"
    assert topology.ip("h300") == "10.0.1.44"
    assert len({topology.ip(host.name) for host in topology.servers}) == 300


def test_links_between_switches_may_differ_and_levels_may_only_pass_on() -> None:
    topology = tree([2, 2, 1], link=Link("a", "b", loss=0.5), trunk=Link("a", "b", rate_bps=1e9), transit=[1])
    rates = {(link.a, link.b): (link.rate_bps, link.loss) for link in topology.links}
    assert rates["s1", "s2"] == (1e9, 0.0)
    assert rates["h1", "s4"] == (10e9, 0.5)
    assert [switch.aggregates for switch in topology.switches] == [True, False, False, True, True, True, True]


def test_every_leaf_is_linked_to_every_spine() -> None:
    topology = leaf_spine(2, 3, 4, servers=3)
    assert [topology.rack_of[f"h{n}"] for n in (1, 4, 5, 12)] == ["s3", "s3", "s4", "s5"]
    assert [topology.rack_of[f"p{n}"] for n in (1, 2, 3)] == ["s1", "s2", "s1"]
    assert all(topology.port_to(leaf, spine) for leaf in ("s3", "s4", "s5") for spine in ("s1", "s2"))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Topology((), (), ()), "needs a switch"),
        (lambda: Topology((S1,), (Server("s1"),), ()), "two nodes are called 's1'"),
        (lambda: Topology((S1,), (H1,), (Link("h1", "s9"),)), "there is no node 's9'"),
        (lambda: Topology((S1,), (H1,), ()), "'h1' has 0 links"),
        (lambda: Topology((S1,), (H1, H2), (Link("h1", "h2"),)), "linked to a server"),
        (lambda: Topology((S1, S2), (), ()), "'s2' cannot be reached from 's1'"),
        (lambda: Topology((S1,), (H1,), (Link("h1", "s1"),), "h1"), "root 'h1' is not a switch"),
        (lambda: star(511).ports, "511 links, and 510 ports"),
        (lambda: Link("a", "a"), "both ends are the same"),
        (lambda: Link("a", "b", loss=1.5), "link a-b: loss is 1.5, must be a probability"),
        (lambda: Link("a", "b", queue_packets=0), "queue_packets is 0, must be 1 or more"),
        (lambda: tree([2, 0]), "every level needs children"),
        (lambda: leaf_spine(2, 0, 4), "2 spines, 0 leaves, 4 hosts: want one of each at least"),
    ],
)
def test_what_is_no_network_is_refused_with_what_would_be_right(make, message) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(BadSpec, match=message.replace("(", r"\(")):
        make()
