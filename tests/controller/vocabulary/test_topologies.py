from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.vocabulary import (
    CATALOG,
    BadSpec,
    Topology,
    dump_topology,
    find_topology,
    named,
    parse_topology,
)

GOOD = """\
name: office
link_defaults: {rate_bps: 1e9, delay_s: 50e-6}
switch:
  - s1
  - {name: s2, slots: 0}
server: [h1, on, {name: p1, role: fallback}]
link:
  - [h1, s1]
  - [on, s2]
  - {a: s1, b: s2, rate_bps: 10e9, loss: 0.01}
  - [p1, s1]
"""


def test_a_file_says_what_it_means() -> None:
    topology = parse_topology(GOOD)
    assert (topology.name, topology.root) == ("office", "s1")
    assert [switch.aggregates for switch in topology.switches] == [True, False]
    assert [host.role for host in topology.servers] == ["worker", "worker", "fallback"]
    assert topology.rack_of["on"] == "s2"
    assert [(link.rate_bps, link.delay_s, link.loss) for link in topology.links[1:3]] == [
        (1e9, 50e-6, 0.0),
        (10e9, 50e-6, 0.01),
    ]


@pytest.mark.parametrize("name", CATALOG)
def test_what_is_written_is_read_again(name: str) -> None:
    topology = named(name)
    assert parse_topology(dump_topology(topology)) == topology


@pytest.mark.parametrize(
    "name", ["0E0", "1e5", ".5", "nUll", "True", "on", "~", "\u0663", "1_0", "- a", "a: b"]
)
def test_names_that_look_like_something_else_are_read_again(name: str) -> None:
    base = parse_topology("switch: [s]\nserver: [h]\nlink: [[h, s]]")
    hosts, links = (replace(base.servers[0], name=name),), (replace(base.links[0], a=name),)
    topology = Topology(base.switches, hosts, links)
    assert parse_topology(dump_topology(topology)) == topology


names = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=9)


@given(
    st.lists(names, min_size=2, max_size=2, unique=True),
    st.floats(0, 1e12),
    st.floats(0, 1),
    st.integers(1, 1 << 32),
)
def test_any_names_and_numbers_are_read_again(nodes: list[str], rate: float, loss: float, queue: int) -> None:
    host, switch = nodes
    base = parse_topology("switch: [s]\nserver: [h]\nlink: [[h, s]]")
    link = replace(base.links[0], a=host, b=switch, rate_bps=rate, loss=loss, queue_packets=queue)
    hosts, switches = (replace(base.servers[0], name=host),), (replace(base.switches[0], name=switch),)
    topology = Topology(switches, hosts, (link,))
    assert parse_topology(dump_topology(topology)) == topology


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("loss: 0.01", "loss: 2", "x.yaml:10: link: loss = 2: want a probability, from 0 to 1"),
        ("loss: 0.01", "los: 2", "x.yaml:10: link: unknown key 'los'; did you mean 'loss'?"),
        ("loss: 0.01", "queue_packets: 0", "x.yaml:10: link: queue_packets = 0: want a whole number, 1 to"),
        (
            "rate_bps: 1e9",
            "rate_bps: fast",
            'x.yaml:2: link_defaults: rate_bps = "fast": want bits per second',
        ),
        ("delay_s: 50e-6", "delay_s: nan", 'x.yaml:2: link_defaults: delay_s = "nan": want seconds'),
        ("[h1, s1]", "[h1, s9]", "x.yaml:8: link: unknown node 's9'; known are s1, s2, h1, on, p1"),
        ("[h1, s1]", "[h1]", "x.yaml:8: link: has 1 ends; want two, as [h1, s1]"),
        ("[h1, s1]", "{a: h1}", "x.yaml:8: link: b is missing"),
        ("[h1, s1]", "[h1, h1]", "x.yaml:8: link h1-h1: both ends are the same node"),
        (
            "role: fallback",
            "role: boss",
            "x.yaml:6: server 'p1': role = \"boss\": want one of 'worker', 'fallback', 'traffic'",
        ),
        ("slots: 0", "slots: -1", "x.yaml:5: switch 's2': slots = -1: want a whole number, 0 to"),
        ("slots: 0", "aggregates: false", "x.yaml:5: switch 's2': aggregates is not a key: want slots = 0"),
        ("name: office", "root: h1", "x.yaml:1: the root 'h1' is not a switch; want one of s1, s2"),
        ("name: office", "root: s3", "x.yaml:1: the root 's3' is not a switch; want one of s1, s2"),
        ("name: office", "? [1]\n: 2", "x.yaml:1: a key is no text"),
        ("name: office", "name: [", "x.yaml:"),
        ("server: [h1, on,", "server: h1\nroot: [s1,", "x.yaml:7: root = "),
        (
            "server: [h1, on, {name: p1, role: fallback}]",
            "server: h1",
            'x.yaml:6: server = "h1": want a list',
        ),
        ("switch:", "switches:", "x.yaml:3: switches is not a key: want switch"),
        ("server:", "hosts:", "x.yaml:6: hosts is not a key: want server"),
        ("link:\n", "links:\n", "x.yaml:7: links is not a key: want link"),
        ("switch:", "swich:", "x.yaml:3: unknown key 'swich'; did you mean 'switch'?"),
        ("name: office", "link_defaults: {}", "x.yaml:2: the key 'link_defaults' appears twice"),
        (GOOD, "name: a", "x.yaml: switch is missing"),
        (GOOD, "", "x.yaml: switch is missing"),
        (GOOD, "- 1", "x.yaml: want a table at the top, not [1]"),
    ],
)
def test_what_is_wrong_is_named_with_line_and_what_would_be_right(old: str, new: str, message: str) -> None:
    with pytest.raises(BadSpec) as caught:
        parse_topology(GOOD.replace(old, new, 1), source="x.yaml")
    assert str(caught.value).startswith(message)


def test_a_file_is_named_by_its_ending(tmp_path: Path) -> None:
    (tmp_path / "a.yml").write_text(GOOD)
    assert find_topology(str(tmp_path / "a.yml")).name == "office"
    with pytest.raises(BadSpec, match=r"b\.yaml: cannot be read: No such file"):
        find_topology(str(tmp_path / "b.yaml"))
