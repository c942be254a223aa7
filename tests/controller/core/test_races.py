"""Real jobs may come to their end while they are being stopped; then a policy believes that they wait."""

from __future__ import annotations

import math

import pytest

from benchmarks import replicas
from controller.core import Stop
from controller.policies.family import SimulationConfig
from controller.policies.registry import family, known
from controller.policies.scheduling import Submission
from controller.simulator.policy_run import make
from controller.vocabulary import Cluster
from tests.controller.core.driver import Driver

NEVER_STOP = {"fifo", "fifo-backfill", "sjf", "qssf", "benchmarks.replicas.muri:antman"}


def spec(name: str, duration_s: float, gpus: int) -> Submission:
    return Submission(name, 0.0, gpus, duration_s, stages_s=(0.3, 0.3, 0.4), estimate_s=duration_s)


def stopped_by(live: Driver, now_s: float) -> tuple[set[str], float]:
    """Let time pass until a decision stops jobs; return these, and when that was."""
    while now_s < 1e5:
        now_s = max(now_s + 1.0, live.next_s if math.isfinite(live.next_s) else 0.0)
        stops = [action for action in live.decide(now_s) if isinstance(action, Stop)]
        waiting = {name for stop in stops for name in stop.run.jobs} - {
            name for run in live.runs for name in run.jobs
        }
        if waiting:
            return waiting, now_s
    raise AssertionError("nothing was ever stopped")


PLAIN = [name for name in known() if not family(name)]
PLAIN += map(replicas.full_name, replicas.known("muri-replica"))


@pytest.mark.parametrize("name", [name for name in PLAIN if name not in NEVER_STOP])
def test_a_job_that_ends_while_it_is_being_stopped_is_over(name: str) -> None:
    cluster = Cluster.uniform(1, 2)
    chosen = make(name, SimulationConfig(cluster))
    live = Driver(cluster, chosen.policy, chosen.speed)
    live.submit(spec("long", 1000.0, 2), 0.0)
    live.decide(0.0)
    for number in range(8):
        live.submit(spec(f"short{number}", 10.0 + number, 1), 1.0)
    stopped, now_s = stopped_by(live, 0.0)
    for job in stopped:
        live.ended(job, now_s + 0.5)
    live.submit(spec("late", 5.0, 1), now_s + 1.0)
    now_s += 1.0
    while live.jobs:
        live.decide(now_s)
        assert not stopped & {job for run in live.runs for job in run.jobs}
        for run in live.runs[:1]:
            live.ended(run.jobs[0], now_s + 1.0)
        now_s = max(now_s + 2.0, live.next_s if math.isfinite(live.next_s) else 0.0)
    assert len(live.ended_jobs) == 10
