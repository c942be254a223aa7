"""Which policies `ina advise` compares, how it ranks them, and what it adds to a cluster."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from controller.policies.settings import FEW_SERVERS, SIMPLEST, PolicyChoice
from controller.simulator.network.advice import (
    GAPS,
    LENGTHS,
    Figures,
    choices,
    larger,
    recommend,
    summarize,
    variation,
)
from controller.vocabulary import Job, Link, Server, Switch, Topology, fabrics
from ina.cli.commands import app

EXAMPLES = Path(__file__).parents[3] / "examples" / "cluster"

OTHER = PolicyChoice("srsf", "netpack", "shared", "shortest-path")


def star(slots: int = 64, rates: tuple[float, ...] = (1e9, 1e9)) -> Topology:
    servers = tuple(Server(f"h{n}", gpus=4) for n in range(len(rates)))
    links = tuple(Link("s1", f"h{n}", rate_bps=rate) for n, rate in enumerate(rates))
    return Topology((Switch("s1", slots=slots),), servers, links)


def job(name: str, **values: object) -> Job:
    return Job(name=name, workers=2, **values)  # type: ignore[arg-type]


def kinds(found: list[PolicyChoice]) -> dict[str, set[str]]:
    return {
        kind: {getattr(each, kind) for each in found}
        for kind in ("scheduler", "placement", "memory", "routing")
    }


def test_the_simplest_comes_first_and_each_combination_once() -> None:
    found = choices([job("a")], star())
    assert found[0] == SIMPLEST
    assert len(set(found)) == len(found)


def test_only_policies_that_can_make_a_difference_are_compared() -> None:
    plain = kinds(choices([job("a")], star(slots=0)))
    assert plain["memory"] == {"shared"}
    assert plain["routing"] == {"shortest-path"}
    assert "edf" not in plain["scheduler"]
    assert "locality-fast-links" not in plain["placement"]
    rich = kinds(choices([job("a", deadline_s=9)], star(rates=(1e9, 1e10))))
    assert rich["memory"] == {"shared", "static", "deadline", "earliest"}
    assert "edf" in rich["scheduler"]
    assert "locality-fast-links" in rich["placement"]
    joint = PolicyChoice("joint", "scheduler", "shared", "shortest-path")
    for deadline_s in (9, None):
        assert joint in choices([job("a", deadline_s=deadline_s)], star()), "the default is always among them"
    many = fabrics.star(FEW_SERVERS + 1)
    assert "joint" not in kinds(choices([job("a", deadline_s=9)], many))["scheduler"]


def test_a_network_with_several_paths_has_a_choice_of_trees() -> None:
    spines = tuple(Switch(name) for name in ("s1", "s2", "l1", "l2"))
    links = [Link(spine, leaf) for spine in ("s1", "s2") for leaf in ("l1", "l2")]
    servers = (Server("h1"), Server("h2"))
    meshed = Topology(spines, servers, (*links, Link("l1", "h1"), Link("l2", "h2")))
    assert kinds(choices([job("a")], meshed))["routing"] == {"shortest-path", "ecmp-everywhere", "grid"}


def test_the_first_variation_is_the_file_and_others_repeat() -> None:
    jobs = [job("a", arrival_s=5, iterations=1000), job("b", arrival_s=2, duration_s=50.0, deadline_s=80)]
    assert variation(jobs, 0) == tuple(jobs)
    assert variation(jobs, 3) == variation(jobs, 3) != variation(jobs, 4)


def test_a_variation_keeps_order_names_and_deadlines_within_its_ranges() -> None:
    jobs = [job(f"j{n}", arrival_s=10.0 * n, iterations=1000, deadline_s=99) for n in range(6)]
    varied = variation(jobs, 1)
    assert [each.name for each in varied] == [each.name for each in jobs]
    assert all(each.deadline_s == 99 for each in varied)
    assert all(LENGTHS[0] * 1000 <= each.iterations <= LENGTHS[1] * 1000 for each in varied)
    gaps = [b.arrival_s - a.arrival_s for a, b in itertools.pairwise(varied)]
    assert all(GAPS[0] * 10 <= gap <= GAPS[1] * 10 for gap in gaps)


def test_more_of_each_resource_changes_nothing_else() -> None:
    there = star()
    found = larger(there)
    assert set(found) == {"one more server", "links twice as fast", "twice as many slots"}
    more = found["one more server"]
    assert more.gpus == there.gpus + 4
    assert more.links[:-1] == there.links
    assert [link.rate_bps for link in found["links twice as fast"].links] == [2e9, 2e9]
    slower = replace(found["links twice as fast"], links=there.links)
    assert slower == there
    assert found["twice as many slots"].switches[0].slots == 128


def test_without_switch_memory_more_slots_are_not_tried() -> None:
    assert "twice as many slots" not in larger(star(slots=0))


def figures(missed: int, **jct_s: float) -> Figures:
    return Figures(sum(jct_s.values()) / len(jct_s), missed, 2, jct_s)


def test_a_standing_says_who_pays() -> None:
    base = [figures(1, a=10, b=10), figures(1, a=10, b=10)]
    found = summarize(OTHER, [figures(1, a=5, b=14), figures(1, a=5, b=10)], base)
    assert found.change == pytest.approx((-0.05 - 0.25) / 2)
    assert found.change_range == pytest.approx((-0.25, -0.05))
    assert found.slowed == 0.25
    assert (found.worst, found.worst_factor) == ("b", 1.4)


def test_fewer_missed_deadlines_come_before_shorter_times() -> None:
    base = [figures(1, a=10)]
    simplest = summarize(SIMPLEST, base, base)
    in_time = summarize(OTHER, [figures(0, a=20)], base)
    assert recommend([simplest, in_time], SIMPLEST) is in_time


def test_the_default_is_recommended_unless_others_are_clearly_better() -> None:
    base = [figures(1, a=100)]
    simplest = summarize(SIMPLEST, base, base)
    slightly, clearly = (summarize(OTHER, [figures(1, a=seconds)], base) for seconds in (98, 90))
    assert recommend([slightly, simplest], SIMPLEST) is simplest
    assert recommend([clearly, simplest], SIMPLEST) is clearly
    assert recommend([slightly, simplest], OTHER) is slightly


# --------------------------------------------------------------------------- the command


def advise(*arguments: object) -> Result:
    files = ("--jobs", EXAMPLES / "jobs.toml", "--cluster", EXAMPLES / "racks.toml")
    return CliRunner().invoke(app, ["advise", *map(str, (*files, "--processes", 1, *arguments))])


def test_the_command_ranks_policies_as_the_simulation_does_and_says_what_would_help() -> None:
    advice = json.loads(advise("--variations", 1, "--leaders", 3, "--json").stdout)
    found = advice["metrics"]
    ranks = [(each["missed"], each["avg_jct_s"]) for each in found["policies"]]
    assert ranks == sorted(ranks)
    assert 3 <= len(ranks) <= 5  # the leaders, the simplest and the default
    assert advice["setup"]["simplest"] in [each["choice"] for each in found["policies"]]
    more = found["with_more"]
    assert more["links twice as fast"]["avg_jct_s"] < more["nothing more"]["avg_jct_s"]
    first = found["policies"][0]["choice"]
    options = itertools.chain.from_iterable(
        (f"--{kind}", first[kind]) for kind in ("scheduler", "placement", "memory", "routing")
    )
    files = ("--jobs", EXAMPLES / "jobs.toml", "--cluster", EXAMPLES / "racks.toml")
    arguments = ["cluster", "simulate", *map(str, (*files, *options, "--json"))]
    simulated = json.loads(CliRunner().invoke(app, arguments).stdout)["metrics"][" + ".join(first.values())]
    assert simulated["avg_jct_s"] == found["policies"][0]["avg_jct_s"]
    assert simulated["missed"] == found["policies"][0]["missed"]


def test_tables_end_with_a_recommendation() -> None:
    printed = advise("--variations", 2, "--leaders", 1, "--best", 1).stdout
    assert "10 jobs on 32 GPUs, mean of 2 variations" in printed
    assert "What limits" in printed
    assert "\nUse " in printed
    assert "\nWould help most: links twice as fast" in printed


@pytest.mark.parametrize(
    ("rate_bps", "faster_bps"), [(550e9, 1.1e12), (1.6e12, 3.2e12), (6e14, 1e15), (1e15, None), (0, None)]
)
def test_links_twice_as_fast_stay_within_the_bound_of_rates(
    rate_bps: float, faster_bps: float | None
) -> None:
    found = larger(star(rates=(rate_bps, rate_bps))).get("links twice as fast")
    assert (found and found.links[0].rate_bps) == faster_bps


@pytest.mark.parametrize("rate_bps", ["0", "550e9", "1.6e12"])
def test_advice_on_fast_and_unlimited_links_is_a_table(
    write_file: Callable[[str, str], Path], rate_bps: str
) -> None:
    cluster = write_file(
        "c.toml", f'[fabric]\nshape = "star"\nservers = 2\ngpus = 1\nrate_bps = {rate_bps}\n'
    )
    jobs = write_file("j.toml", '[[job]]\nname = "a"\nmodel = "resnet50"\nworkers = 2\niterations = 10\n')
    found = CliRunner().invoke(
        app,
        ["advise", "--variations", "1", "--processes", "1", "--jobs", str(jobs), "--cluster", str(cluster)],
    )
    assert found.exit_code == 0, found.output
    assert "What limits" in found.output
