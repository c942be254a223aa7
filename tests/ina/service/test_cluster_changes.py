"""The daemon's cluster changes: under jobs, in the place of the file, and with a death after each step."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bmv2_topos.testbeds.netns import forwarding
from controller.vocabulary import Job, Link, Topology
from controller.vocabulary.catalog import leaf_spine
from controller.vocabulary.graphs import pinned
from ina.service.errors import Conflict
from ina.service.wiring import Wiring
from tests import effort
from tests.clusters import without
from tests.ina.service import mishaps
from tests.ina.service.schedule import Schedule, play
from tests.ina.service.virtual import ITERATION_S

WHOLE = pinned(leaf_spine(2, 2, 2, servers=2, link=Link("a", "b")))
"""Spines s1 and s2 with p1 and p2 for fallback servers; leaves s3 and s4 with h1 to h4."""
SMALL = without(WHOLE, ["h2", "s2"])


def job(schedule: Schedule, name: str, seconds: float, **keys: object) -> Job:
    schedule.world.iterations[name] = iterations = int(seconds / ITERATION_S)
    values = {"command": ("train",), "iterations": iterations, "compute_s": 0.03, **keys}
    return Job(name=name, **values)  # type: ignore[arg-type]


async def life(schedule: Schedule) -> None:
    """A server comes and is used; a spine and a server go, and jobs move or fail."""

    async def change(to: Topology) -> None:
        schedule.cluster = to
        await schedule.ask(lambda daemon: daemon.change_cluster(schedule.cluster))

    await change(SMALL)
    waits = job(schedule, "waits", 3.0, workers=2, servers=("h1", "h4"))
    wide = job(schedule, "wide", 6.0, workers=3)
    await schedule.ask(lambda daemon: daemon.submit([wide, waits], key="both"))
    await schedule.until(lambda daemon: daemon.record("wide").over or bool(schedule.world.runs))
    await change(WHOLE)
    named = job(schedule, "named", 100.0, workers=2, servers=("h2", "h3"))
    await schedule.ask(lambda daemon: daemon.submit([named], key="named"))
    await schedule.until(lambda daemon: daemon.record("named").state == "running")
    await change(without(WHOLE, ["s1", "h2"]))
    await schedule.until(lambda daemon: daemon.record("named").over)
    await schedule.until(lambda daemon: all(each.over for each in daemon.records()) and not daemon.holds)
    await schedule.until(lambda daemon: not strangers(schedule))


def strangers(schedule: Schedule) -> list[str]:
    """Switches of the cluster that still know a way to a server that has left."""
    mac = forwarding.strange([WHOLE.mac("h2")])[0].match
    found = []
    for name in schedule.cluster.switch:
        switch = schedule.world.switches[name]
        rows = switch.read(switch.tables)
        found += [name for row in rows if getattr(row, "match", None) == mac]
    return found


def test_jobs_outlast_changes_wherever_the_daemon_dies() -> None:
    whole = play(1, life, WHOLE)
    ends = {name: state for name, (state, _) in whole.ends.items()}
    assert ends == {"wide": "completed", "waits": "completed", "named": "failed"}
    assert "there is no server 'h2'" in whole.ends["named"][1]
    first_of_each = {whole.passed.index(name) for name in whole.passed}
    for step in sorted({*first_of_each, *effort.some(range(len(whole.passed)), every=60)}):

        async def dying(schedule: Schedule, step: int = step) -> None:
            schedule.kill(in_steps=step + 1)
            await life(schedule)

        try:
            play(1, dying, WHOLE)
        except Exception as error:
            where = f"{step + 1} of {len(whole.passed)}, {whole.passed[step]}"
            raise AssertionError(f"died after step {where}") from error


@pytest.mark.parametrize("seed", range(9000, 9000 + effort.cases(12)))
def test_random_mishaps_with_changes_leave_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mishaps, "WEIGHTS", {**mishaps.WEIGHTS, "cluster": 6})
    play(seed, cluster=WHOLE if seed % 2 else None)


def test_a_file_that_changed_while_nobody_served_is_an_event_at_the_next_start() -> None:
    async def story(schedule: Schedule) -> None:
        stays = job(schedule, "stays", 100.0, workers=2, servers=("h1", "h3"), fallback="p1")
        goes = job(schedule, "goes", 100.0, workers=1, servers=("h2",))
        await schedule.ask(lambda daemon: daemon.submit([stays, goes]))
        await schedule.until(lambda daemon: len(schedule.world.runs) == 2)
        schedule.kill()
        schedule.cluster = SMALL
        await schedule.until(lambda daemon: daemon.topology == SMALL)
        await schedule.until(lambda daemon: daemon.record("goes").over)
        assert schedule.daemon.record("stays").starts == 1
        texts = [each.entry.text for each in schedule.daemon.decisions()]
        assert "cluster: switch 's2' has left the cluster" in texts
        schedule.kill()  # what is known of both clusters is replayed
        await schedule.wait(1.0)
        await schedule.until(lambda daemon: daemon.topology == SMALL)
        again = [each.entry.text for each in schedule.daemon.decisions()]
        assert again[: len(texts)] == texts
        await schedule.ask(lambda daemon: daemon.cancel("stays"))

    play(1, story, WHOLE)


def test_a_cluster_that_cannot_follow_is_refused_whole() -> None:
    async def story(schedule: Schedule) -> None:
        await schedule.until(lambda daemon: True)
        before = schedule.daemon.decisions()
        with pytest.raises(Conflict, match=r"switch_ip = .10\.1\.1\.1.: want .., to which workers"):
            await schedule.daemon.change_cluster(replace(SMALL, switch_ip="10.1.1.1"))
        assert schedule.daemon.topology == WHOLE
        assert schedule.daemon.decisions() == before
        assert await schedule.daemon.change_cluster(WHOLE) == ()

    play(1, story, WHOLE)


def test_a_wiring_knows_what_has_left() -> None:
    first = Wiring.of(WHOLE)
    second = first.changed(SMALL, SMALL)
    assert {*second.left} == {"s2"}
    assert second.macs == {WHOLE.mac("h2"), WHOLE.mac("p2")}
    third = second.changed(WHOLE, WHOLE)
    assert (third.left, third.macs) == ({}, frozenset())
