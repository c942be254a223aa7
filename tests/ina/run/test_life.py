"""What a job of the service goes through, in virtual time: starts, drains, other slots, ends."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from controller import Fleet, TreeAdmission
from controller.policies.settings import AllocationSettings
from controller.vocabulary import BadSpec, Job
from hostlib.core import TIMEOUT_S
from ina.errors import Conflict
from tests.ina.run.served import CLUSTER, LEFT, RIGHT, Served

SERVERS = CLUSTER.servers_for("worker")
WIDE = (LEFT, RIGHT)


async def test_a_job_that_gives_up_while_a_switch_hangs_starts_again(served: Served) -> None:
    """Also if the switch goes on before any call to it has failed: found by the soak of real processes."""
    world, daemon = served.world, served.daemon
    await served.submit("own", 2000, WIDE)
    world.hung_s = 8.5
    await asyncio.sleep(4.0)  # a comparison has begun
    (run,) = world.runs.values()
    run.end("own", "rank 0 exited with status 1")
    world.hung_s = 0.0
    await served.until(lambda: daemon.reports.record("own").starts == 2 or daemon.reports.record("own").over)
    assert not daemon.reports.record("own").over, daemon.reports.record("own").reason
    assert "s to answer; rank 0 exited with status 1" in " ".join(served.texts("own"))
    assert await served.over() == ["completed"]
    await served.clean()


@pytest.mark.parametrize("after_s", [0.0, 1.5, 3.0, 5.0, 8.0])
async def test_a_job_that_was_removed_from_a_switch_is_back_while_its_workers_wait(
    served: Served, after_s: float
) -> None:
    """Found by a soak: up to 10 s passed until all rows of a switch were compared, and workers wait 8."""
    await served.submit("own", 2000, WIDE)
    (own,) = [hold.admissions["own"] for hold in served.daemon.ledger.holds.values()]
    await served.submit("beside", 2000, SERVERS[1:3])
    for name in own.switches:
        await asyncio.sleep(after_s)
        at = served.world.connect(name)
        Fleet({name: at}).remove(TreeAdmission({name: at.jobs()[own.job]}))
        await served.until(lambda at=at: own.job in at.jobs(), TIMEOUT_S * 3 / 4)
    assert await served.over() == ["completed"] * 2
    await served.clean()


async def test_a_job_whose_runner_is_of_another_version_starts_again(served: Served) -> None:
    """Its controller was upgraded while it ran."""
    await served.submit("own", 2000, WIDE)
    served.world.others = dict.fromkeys(served.world.runs, "it speaks protocol 1, this end 4")
    await served.again()
    assert await served.over() == ["completed"]
    assert served.daemon.reports.record("own").starts == 2
    assert "its runner: it speaks protocol 1, this end 4" in " ".join(served.texts("own"))
    await served.clean()


async def test_a_job_that_is_being_started_does_not_wait_for_its_turn(served: Served) -> None:
    seen: set[tuple[str, str]] = set()

    def over() -> bool:
        record = served.daemon.reports.record("own")
        seen.add((record.state, record.reason))
        return record.over

    served.world.iterations["own"] = 20
    await served.daemon.submit([Job(name="own", workers=2, command=("train",), iterations=20)])
    await served.until(over)
    assert {state for state, _ in seen} >= {"starting", "running"}, seen
    assert not any("turn" in reason for state, reason in seen if state == "starting"), seen


async def test_a_job_with_a_worker_that_never_joins_fails_with_its_rank_and_frees_its_place(
    served: Served,
) -> None:
    """The job that waits for its GPUs has its turn then; also if the daemon is killed meanwhile."""
    everything = WIDE * CLUSTER.server[LEFT].gpus
    served.world.absent.add("absent")
    await served.submit("absent", 20, everything)
    await served.submit("next", 20, everything, "queued")
    await served.again()
    assert await served.over() == ["failed", "completed"]
    assert "rank 1 never joined" in served.daemon.reports.record("absent").reason
    assert served.world.completed == {"next": 1}
    await served.clean()


async def test_the_end_of_a_job_that_reports_nothing_is_unknown_once_it_runs_longer_than_its_file_says(
    served: Served,
) -> None:
    """It was once predicted to be done in no time, for as long as it ran."""
    served.world.endless.add("silent")
    await served.submit("silent", 100, WIDE, compute_s=0.1)
    served.world.iterations["silent"] = 0
    left_s = served.daemon.reports.record("silent").left_s
    assert left_s is not None
    assert 5.0 < left_s < 15.0
    await served.until(lambda: served.daemon.reports.record("silent").left_s is None)
    await asyncio.sleep(60.0)
    record = served.daemon.reports.record("silent")
    assert (record.state, record.left_s, record.late) == ("running", None, False)


async def test_jobs_are_refused_whose_folder_is_not_on_the_machine_of_the_testbed(
    served: Served, tmp_path: Path
) -> None:
    """They were accepted, and failed after several tries with env's status 125."""
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "none", tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(BadSpec, match=f"'lost': extra.folder = '{folder}': want a directory on"):
            await served.submit("lost", 1, (LEFT,), extra={"folder": str(folder)})
    await served.submit("found", 2000, (LEFT,), extra={"folder": str(tmp_path)})
    assert [each.name for each in served.daemon.reports.records()] == ["found"]


# --------------------------------------------------------------------------- drains


async def test_a_job_whose_server_is_drained_hears_so_and_waits_for_its_gpus(served: Served) -> None:
    everything = sum(server.gpus for server in CLUSTER.servers)
    await served.submit("wide", 2000, workers=everything)
    await served.daemon.drain(LEFT)
    await served.until(lambda: served.daemon.reports.record("wide").state == "queued")
    assert f"server {LEFT} is down: drained" in served.texts("wide")
    assert served.daemon.reports.record("wide").reason == f"server {LEFT} is down: drained"
    await served.submit("next", 1, state="queued", workers=everything)
    lost = CLUSTER.server[LEFT].gpus
    assert served.daemon.reports.record("next").reason == (
        f"needs {everything} GPUs; {everything - lost} of {everything - lost} are free; "
        f"{lost} more on servers that are down, drained or gone"
    )


async def test_no_job_starts_on_a_server_that_a_run_has_lost_before_the_engine_has_looked_at_it(
    served: Served,
) -> None:
    """Ray counts a node as living for 15 s after its end: the job was started there once more, in vain."""
    served.world.endless.add("moves")
    await served.submit("moves", 100, (LEFT, RIGHT))
    served.world.watched = False
    served.world.dead[RIGHT] = "its machine has ended"
    await asyncio.sleep(15.0)
    assert served.daemon.reports.record("moves").starts == 1
    served.world.watched = True
    await served.until(lambda: served.daemon.reports.record("moves").state == "queued")
    served.world.dead.clear()
    await served.until(lambda: served.daemon.reports.record("moves").state == "running")
    assert served.daemon.reports.record("moves").starts == 2
    assert f"server {RIGHT} is down: its machine has ended" in served.texts("moves")


async def test_a_server_is_drained_once(served: Served) -> None:
    daemon = served.daemon
    await daemon.drain(RIGHT, by="alice")
    before = daemon.reports.decisions()
    await daemon.drain(RIGHT, by="bob")
    assert daemon.reports.decisions() == before
    assert f"server {RIGHT}: drained by alice" in [each.entry.text for each in before]
    with pytest.raises(Conflict, match="is not drained"):
        await daemon.drain(LEFT, back=True)


# --------------------------------------------------------------------------- slots and windows

KNOWN = {"compute_s": 0.05, "layers_bytes": (1_000_000,)}
URGENT = {**KNOWN, "deadline_s": 1500.0}
PATIENT_PAIR, URGENT_PAIR = (SERVERS[1], SERVERS[2]), (SERVERS[0], SERVERS[-1])
DIVIDED = AllocationSettings(memory="deadline", period_s=0.0)


async def end(served: Served, *names: str) -> None:
    for each in names:
        await served.daemon.cancel(each)
    await served.clean()


def told(served: Served) -> dict[str, int]:
    """Return how many packets the workers of each job may have in flight, as they were told."""
    return {name: packets for run in served.world.runs.values() for name, packets in run.in_flight.items()}


def meant(served: Served) -> dict[str, int]:
    """Return how many they may have, as was decided."""
    return {name: place.in_flight for name, place in served.daemon.ledger.desired().places.items()}


def sizes(served: Served, name: str) -> list[int]:
    return [region.size for region in served.daemon.ledger.desired().places[name].regions.values()]


@pytest.mark.parametrize(
    "served", [{"allocation": AllocationSettings(memory="deadline", period_s=5.0)}], indirect=True
)
async def test_a_wrong_hold_time_of_the_job_file_is_corrected_by_the_running_job(served: Served) -> None:
    """Its owner believes that slots are held for 2 ms; its ranks tell that it is a quarter of that."""
    served.world.endless.add("urgent")
    await served.submit("urgent", 10_000, URGENT_PAIR, **URGENT, hold_s=0.002)
    believed = sizes(served, "urgent")
    assert told(served) == {"urgent": min(believed)}
    ((number, run),) = served.world.runs.items()
    run.status = replace(run.status, hold_s={"urgent": 0.0005})
    served.daemon._measures._report((number, "urgent"), None)  # of packets there are none to count
    await served.until(lambda: sizes(served, "urgent") != believed)
    for size, before in zip(sizes(served, "urgent"), believed, strict=True):
        assert size == pytest.approx(before / 4, rel=0.1, abs=1.0)
    assert any("a slot is held for 0.5 ms" in each.entry.text for each in served.daemon.reports.decisions())
    await served.until(lambda: told(served) == meant(served) == {"urgent": min(sizes(served, "urgent"))})
    await end(served, "urgent")


@pytest.mark.parametrize("served", [{"allocation": DIVIDED}], indirect=True)
async def test_workers_are_told_of_each_grant_by_a_daemon_that_starts_again_too(served: Served) -> None:
    served.world.endless |= {"patient", "urgent"}
    await served.submit("patient", 10_000, PATIENT_PAIR, **KNOWN)
    alone = meant(served)["patient"]
    await served.until(lambda: told(served) == meant(served))
    await served.submit("urgent", 10_000, URGENT_PAIR, **URGENT, hold_s=0.005)
    await served.until(lambda: told(served) == meant(served) and len(told(served)) == 2)
    assert told(served)["patient"] < alone
    decided = meant(served)
    for run in served.world.runs.values():
        run.in_flight = {}  # as if the daemon had died before it told them
    await served.again()
    await served.until(lambda: told(served) == meant(served) == decided)
    await end(served, "patient", "urgent")
