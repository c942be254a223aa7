"""All policies of the public simulator, to the digit, on 48 jobs of one to eight GPUs on two servers.

The figures are what the public simulator (msr-fiddle/synergy, commit 1bb2bed) prints for the same jobs.
"""

import statistics

import pytest

from benchmarks.replicas.steps import SteppedRun
from benchmarks.replicas.synergy.rules import RoundSpeed, replica_demands, replica_policy
from controller.policies.scheduling import Submission
from controller.policies.scheduling.synergy.demand import ModelProfile, Sensitivity, Servers, ServerShape
from controller.vocabulary import Cluster

SHAPE = ServerShape(gpus=8, cpus=24, memory_gb=500)
UNUSED = Sensitivity.build([1], [20], [[1]])
PROFILES = {
    name: ModelProfile(name, UNUSED, 512, *figures)
    for name, figures in {  # seconds per iteration, speed-up, CPUs and GB for each GPU
        "alexnet": (0.6, 2.94, 12, 125),
        "res18": (0.64, 2.4, 9, 62.5),
        "m5": (0.6, 2.5, 6, 187.5),
        "mobilenet": (0.71, 1.55, 6, 62.5),
        "gnmt": (0.12, 1, 1, 20),
        "transformer": (0.67, 1, 1, 20),
    }.items()
}
FIGURES = {
    "fifo+fair": (16811.25, 40800, 32405.8),
    "fifo+greedy": (14998.75, 40200, 31613.9),
    "fifo+tune": (15667.5, 38100, 30106.9),
    "srtf+fair": (13811.25, 43800, 37579.2),
    "srtf+greedy": (9786.25, 42000, 32808.4),
    "srtf+tune": (12355.0, 40800, 32802.2),
    "las+fair": (16123.75, 39900, 35833.8),
    "las+greedy": (15286.25, 41700, 37333.8),
    "las+tune": (14855.0, 38700, 34633.8),
    "ftf+fair": (22136.25, 40200, 37976.8),
    "ftf+greedy": (12280.0, 41400, 39064.8),
    "ftf+tune": (18186.25, 39000, 37618.9),
    "drf+fair": (11742.5, 41700, 34293.8),
    "drf+greedy": (10936.25, 42300, 34020.2),
    "drf+tune": (10530.0, 38700, 31611.8),
    "tetris+fair": (11061.25, 42600, 34960.6),
    "tetris+greedy": (9192.5, 40500, 33178.6),
    "tetris+tune": (9736.25, 40800, 32313.4),
}
"""Average, makespan and p99 in seconds."""


def jobs() -> list[Submission]:
    specs = []
    names = list(PROFILES)
    for i in range(48):
        profile = PROFILES[names[i * 5 % 6 if i % 7 else i % 6]]
        gpus = (1, 1, 2, 1, 4, 1, 1, 8)[i * 3 % 8]
        iterations = int((600 + i * 7919 % 9000) / profile.iteration_s)
        specs.append(Submission(str(i), i * 170, gpus, iterations, profile.iteration_s, model=profile.name))
    return specs


@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_those_of_the_public_simulator(name: str) -> None:
    order, _, mode = name.partition("+")
    wants = replica_demands(PROFILES, SHAPE, mode=mode)
    speed = RoundSpeed(wants)
    policy = replica_policy(order, mode, wants, servers=Servers.equal(2, SHAPE))
    cluster = Cluster.uniform(2, SHAPE.gpus, cpus=SHAPE.cpus, memory_gb=SHAPE.memory_gb)
    setup = SteppedRun(policy, speed, 300)
    ran = setup.run(jobs(), cluster, verify=True).jobs
    times = [job.jct_s for job in ran]
    makespan_s = max(job.finish_s for job in ran)
    p99 = statistics.quantiles(times, n=100, method="inclusive")[98]
    assert (statistics.fmean(times), makespan_s, p99) == pytest.approx(FIGURES[name], abs=1e-3)
