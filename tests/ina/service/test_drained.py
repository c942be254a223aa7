"""What is said of servers that were drained, and of the jobs that were there."""

from __future__ import annotations

from controller.vocabulary import Job
from tests.ina.service.served import CLUSTER, LEFT, RIGHT, Served, play


def test_a_job_whose_server_is_drained_hears_so_and_waits_for_its_gpus() -> None:
    async def story(served: Served) -> None:
        daemon = served.daemon
        served.world.iterations["wide"] = 2000
        everything = sum(server.gpus for server in CLUSTER.servers)
        await daemon.submit([Job(name="wide", workers=everything, command=("train",), iterations=2000)])
        await served.until(lambda: daemon.record("wide").state == "running")
        await daemon.drain(LEFT)
        await served.until(lambda: daemon.record("wide").state == "queued")
        told = [each.entry.text for each in daemon.explain("wide").decisions]
        assert f"server {LEFT} is down: drained" in told
        assert daemon.record("wide").reason == f"server {LEFT} is down: drained"
        await daemon.submit([Job(name="next", workers=everything, command=("train",))])
        lost = CLUSTER.server[LEFT].gpus
        assert daemon.record("next").reason == (
            f"needs {everything} GPUs; {everything - lost} of {everything - lost} are free; "
            f"{lost} more on servers that are down, drained or gone"
        )

    play(story)


def test_a_server_is_drained_once() -> None:
    async def story(served: Served) -> None:
        daemon = served.daemon
        await daemon.drain(RIGHT, by="alice")
        before = daemon.decisions()
        await daemon.drain(RIGHT, by="bob")
        assert daemon.decisions() == before
        assert f"server {RIGHT}: drained by alice" in [each.entry.text for each in before]

    play(story)
