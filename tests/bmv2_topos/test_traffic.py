"""Ordinary traffic beside the jobs: it keeps to its rate, takes the switches' tables, and takes its share."""

from __future__ import annotations

import contextlib
import dataclasses
import itertools
import json

import pytest

from bmv2_topos.faults import LinkFault
from bmv2_topos.testbeds.virtual import Flow, Placement, Report, TestbedError, VirtualTestbed, random_flows
from controller.switches import names
from controller.switches.model import mac_to_int
from controller.vocabulary import Link, fat_tree, leaf_spine, star
from softswitch.compiler import ir
from softswitch.engine.pipeline import NoSuchEntry
from tests import effort
from tests.bmv2_topos.beds import SMALL, elements, job, sending

GIGABIT = Link("a", "b", rate_bps=1e9)
PLACED = Placement(("h1", "h2"), "p1")


def beside(*flows: Flow, faults: tuple[LinkFault, ...] = (), seed: int = 0) -> Report:
    """Run a job on h1 and h2 of a star with four hosts, beside flows."""
    entry = sending("a", 2)
    settings = dataclasses.replace(SMALL, seed=seed)
    network = star(4, servers=1, link=GIGABIT)
    report = VirtualTestbed(network, [entry], [PLACED], settings, faults, flows=flows).run()
    assert report.jobs[0].checked_elements == elements(entry)
    return report


@pytest.mark.parametrize("arrivals", ["constant", "poisson"])
@pytest.mark.parametrize("load", effort.some([0.75, 0.5, 0.25], every=3))
def test_traffic_of_x_on_a_link_slows_a_job_to_what_is_left(load: float, arrivals: str) -> None:
    alone = beside().jobs[0].mean_iteration_s
    flow = Flow(source="h3", target="h1", rate_bps=load * 1e9, arrivals=arrivals)  # type: ignore[arg-type]
    report = beside(flow)
    assert report.jobs[0].mean_iteration_s == pytest.approx(alone / (1 - load), rel=0.15)
    of = report.flows[0]
    assert of.sent_packets * 1500 * 8 == pytest.approx(load * 1e9 * report.duration_s, rel=0.1)


def test_traffic_elsewhere_takes_nothing_from_a_job() -> None:
    report = beside(Flow(source="h3", target="h4", rate_bps=9e8))
    assert report.jobs[0].mean_iteration_s == pytest.approx(beside().jobs[0].mean_iteration_s, rel=0.01)
    (of,) = report.flows
    assert 0 <= of.sent_packets - of.arrived_packets <= 3  # under way at the end


def test_a_flow_sends_evenly_from_its_start_to_its_end() -> None:
    flow = Flow(source="h3", target="h4", rate_bps=1e8, packet_bytes=1250, start_s=0.0005, end_s=0.0035)
    (of,) = beside(flow).flows
    assert (of.sent_packets, of.arrived_packets) == (30, 30)  # one in 100 us


def test_packets_by_chance_are_as_many_and_come_in_bunches() -> None:
    entry = job("a", 1, iterations=1, compute_s=0.1)
    flow = Flow(source="h1", target="h2", rate_bps=1e8, packet_bytes=1250, arrivals="poisson")
    reports = []
    for seed in range(6):
        settings = dataclasses.replace(SMALL, seed=seed)
        testbed = VirtualTestbed(
            star(2, servers=1), [entry], [Placement(("h1",), "p1")], settings, flows=[flow]
        )
        reports.append(testbed.run().flows[0].sent_packets)
    assert len(set(reports)) > 1
    for sent in reports:
        assert sent == pytest.approx(1000, abs=5 * 1000**0.5)


def test_a_link_that_loses_loses_ordinary_packets_too() -> None:
    flow = Flow(source="h3", target="h4", rate_bps=5e8)
    (of,) = beside(flow, faults=(LinkFault(0.0, ("h3", "s1"), "loss", 1.0),)).flows
    assert of.sent_packets > 50
    assert of.arrived_packets == 0
    report = beside(flow, faults=(LinkFault(0.0, ("h4", "s1"), "loss", 0.3),))
    (of,) = report.flows
    assert of.arrived_packets == pytest.approx(0.7 * of.sent_packets, rel=0.25)
    assert report.lost_packets > 0


def test_too_much_traffic_fills_a_queue_that_it_shares_with_the_job() -> None:
    # 0.8 Gb/s too much: 3,333 packets in that time, and a queue holds 2,048
    flows = [Flow(source=host, target="h1", rate_bps=9e8, end_s=0.05) for host in ("h3", "h4")]
    report = beside(*flows)
    assert report.dropped_packets > 0
    assert report.jobs[0].resent_packets > 0
    assert all(of.arrived_packets < of.sent_packets for of in report.flows)


def test_packets_take_the_shortest_way_through_the_forwarding_tables() -> None:
    network = leaf_spine(2, 2, 2, servers=1, link=GIGABIT)
    flow = Flow(source="h1", target="h4", rate_bps=1e8)
    testbed = VirtualTestbed(network, [sending("a", 2)], [Placement(("h1", "h3"), "p1")], SMALL, flows=[flow])
    report = testbed.run()
    entry = ir.ConstEntry(
        (ir.Pattern("exact", mac_to_int(network.mac("h4"))),), ir.Invocation(names.FORWARD, (0,)), 0
    )
    met = dict.fromkeys(("s1", "s2"), 0)
    for name, pipeline in testbed.fabric.pipelines.items():
        with contextlib.suppress(NoSuchEntry):  # where it does not pass
            met[name] = pipeline.read_direct_counter(names.BRIDGE, entry)[0]
    sent = report.flows[0].sent_packets
    assert report.flows[0].arrived_packets > 10
    assert min(met["s1"], met["s2"]) == 0
    assert all(sent - 3 <= of <= sent for of in (met["s3"], met["s4"], met["s1"] + met["s2"]))


def test_ordinary_traffic_is_spread_over_ways_of_the_same_length() -> None:
    network = fat_tree(4, servers=1)
    flows = [Flow(source="h1", target=f"h{number}", rate_bps=2e8) for number in range(5, 17)]
    entry = sending("a", 2)
    report = VirtualTestbed(network, [entry], [Placement(("h1", "h2"), "p1")], SMALL, flows=flows).run()
    assert all(flow.arrived_packets > 10 for flow in report.flows)
    cores = [name for name in ("s2", "s3", "s4") if any(report.link_bytes[ends] for ends in _from(name))]
    assert cores == ["s2", "s3", "s4"]  # and s1, at which the job's tree ends
    assert report.packet_hops > sum(6 * flow.arrived_packets for flow in report.flows)


def _from(name: str) -> list[tuple[str, str]]:
    links = fat_tree(4, servers=1).ports[name].values()
    return [(name, link.other(name)) for link in links]


def test_flows_that_are_drawn_have_hosts_of_their_own_as_far_as_there_are_enough() -> None:
    network = star(5, servers=1)
    first, *more = random_flows(network, 7, 1e9, seed=3)
    assert len(more) == 6
    assert random_flows(network, 7, 1e9, seed=3) == [first, *more]
    assert random_flows(network, 7, 1e9, seed=4) != [first, *more]
    assert len({first.source, first.target, more[0].source, more[0].target} - {"p1"}) == 4
    with pytest.raises(TestbedError, match=r"flows need two hosts, and star\(1\) has 1"):
        random_flows(star(1), 1, 1e9, seed=0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"target": "h3"}, "flow h3-h3: both ends are the same host"),
        ({"rate_bps": 0.0}, "flow h3-h1: rate_bps is 0, must be more than 0"),
        ({"packet_bytes": 42}, "flow h3-h1: packet_bytes is 42, must be 60 to 9000"),
        ({"arrivals": "pareto"}, "flow h3-h1: arrivals is 'pareto', must be 'constant' or 'poisson'"),
        ({"start_s": -1.0}, "flow h3-h1: start_s is -1, must be 0 or more"),
        ({"target": "s1"}, "flow h3-s1: there is no host 's1'"),
    ],
)
def test_a_flow_that_cannot_be_is_refused(changes: dict[str, object], message: str) -> None:
    of: dict[str, object] = {"source": "h3", "target": "h1", "rate_bps": 1e8}
    with pytest.raises(TestbedError, match=message):
        beside(Flow(**{**of, **changes}))  # type: ignore[arg-type]


def test_flows_are_in_the_report_in_their_order() -> None:
    flows = [Flow(source=a, target=b, rate_bps=1e7) for a, b in itertools.permutations(("h1", "h3", "h4"), 2)]
    plain = json.loads(json.dumps(beside(*flows).to_json()))
    assert [(of["source"], of["target"]) for of in plain["flows"]] == [(f.source, f.target) for f in flows]
