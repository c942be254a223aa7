"""How often workers were started, as jobs show it."""

from __future__ import annotations

import asyncio

from controller.vocabulary import Job
from tests.ina.service.served import CLUSTER, LEFT, RIGHT, Served, play


def test_starts_counts_when_a_new_tree_makes_workers_start_again() -> None:
    """Also if the daemon is killed meanwhile."""

    async def story(served: Served) -> None:
        served.world.iterations["own"] = 2000
        job = Job(name="own", workers=2, servers=(LEFT, RIGHT), command=("train",), iterations=2000)
        await served.daemon.submit([job])
        await served.until(lambda: served.daemon.record("own").state == "running")
        assert served.daemon.record("own").starts == 1
        place = served.daemon.record("own").place
        assert place is not None
        assert place.tree is not None
        racks = {CLUSTER.rack_of[LEFT], CLUSTER.rack_of[RIGHT]}
        (spine,) = (each for each in place.tree.switches if each not in racks)
        await served.daemon.drain(spine)
        await served.until(lambda: served.daemon.record("own").starts == 2)
        await served.again()
        await served.until(lambda: served.daemon.record("own").state == "running")
        assert served.daemon.record("own").starts == 2
        told = [each.entry.text for each in served.daemon.explain("own").decisions]
        assert "its workers start again: job 'own' is to have another tree" in told
        await served.until(lambda: served.daemon.record("own").over)
        assert (served.daemon.record("own").state, served.daemon.record("own").starts) == ("completed", 2)
        await served.daemon.drain(spine, back=True)
        await served.clean()

    play(story)


def test_a_job_that_gives_up_while_a_switch_hangs_starts_again() -> None:
    """Also if the switch goes on before any call to it has failed: found by the soak of real processes."""

    async def story(served: Served) -> None:
        world, daemon = served.world, served.daemon
        world.iterations["own"] = 2000
        await daemon.submit(
            [Job(name="own", workers=2, servers=(LEFT, RIGHT), command=("train",), iterations=2000)]
        )
        await served.until(lambda: daemon.record("own").state == "running")
        world.hung_s = 8.5
        await asyncio.sleep(4.0)  # a comparison has begun
        (run,) = world.runs.values()
        run.status.ends["own"] = "rank 0 exited with status 1"
        world.hung_s = 0.0
        await served.until(lambda: daemon.record("own").starts == 2 or daemon.record("own").over)
        assert not daemon.record("own").over, daemon.record("own").reason
        told = " ".join(each.entry.text for each in daemon.explain("own").decisions)
        assert "s to answer; rank 0 exited with status 1" in told
        await served.until(lambda: daemon.record("own").over)
        assert daemon.record("own").state == "completed"
        await served.clean()

    play(story)


def test_a_job_that_is_being_started_does_not_wait_for_its_turn() -> None:
    async def story(served: Served) -> None:
        served.world.iterations["own"] = 20
        await served.daemon.submit([Job(name="own", workers=2, command=("train",), iterations=20)])
        seen: set[tuple[str, str]] = set()

        def over() -> bool:
            record = served.daemon.record("own")
            seen.add((record.state, record.reason))
            return record.over

        await served.until(over)
        assert {state for state, _ in seen} >= {"starting", "running"}, seen
        assert not any("turn" in reason for state, reason in seen if state == "starting"), seen

    play(story)


def test_a_job_with_a_worker_that_never_joins_fails_with_its_rank_and_frees_its_place() -> None:
    """The job that waits for its GPUs has its turn then; also if the daemon is killed meanwhile."""

    async def story(served: Served) -> None:
        gpus = CLUSTER.server[LEFT].gpus
        for name in ("absent", "next"):
            served.world.iterations[name] = 20
        served.world.absent.add("absent")
        jobs = [
            Job(name=name, workers=2 * gpus, servers=(LEFT, RIGHT) * gpus, command=("train",), iterations=20)
            for name in ("absent", "next")
        ]
        await served.daemon.submit(jobs)
        await served.until(lambda: served.daemon.record("absent").state == "running")
        assert served.daemon.record("next").state == "queued"
        await served.again()
        await served.until(lambda: served.daemon.record("absent").over)
        record = served.daemon.record("absent")
        assert record.state == "failed", record
        assert "rank 1 never joined" in record.reason
        await served.until(lambda: served.daemon.record("next").over)
        assert served.daemon.record("next").state == "completed"
        assert served.world.completed == {"next": 1}
        await served.clean()

    play(story)


def test_the_end_of_a_job_that_reports_nothing_is_unknown_once_it_runs_longer_than_its_file_says() -> None:
    """It was once predicted to be done in no time, for as long as it ran."""

    async def story(served: Served) -> None:
        daemon = served.daemon
        served.world.iterations["silent"] = 0
        served.world.endless.add("silent")
        job = Job(
            name="silent", workers=2, servers=(LEFT, RIGHT), command=("train",), iterations=100, compute_s=0.1
        )
        await daemon.submit([job])
        await served.until(lambda: daemon.record("silent").state == "running")
        left_s = daemon.record("silent").left_s
        assert left_s is not None
        assert 5.0 < left_s < 15.0
        await served.until(lambda: daemon.record("silent").left_s is None)
        await asyncio.sleep(60.0)
        record = daemon.record("silent")
        assert (record.state, record.left_s, record.late) == ("running", None, False)

    play(story)
