"""The replica of Muri against figures that Muri's public simulator printed for the trace `small_muri.csv`.

They come from commit 4e69a78 of its repository, on a cluster of two nodes with eight GPUs.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from benchmarks.replicas.muri.speed import ALONE, longer_s
from benchmarks.schedulers.trace_files import SAMPLE as TRACE
from benchmarks.schedulers.trace_files import resolved
from controller.policies.family import SimulationConfig
from controller.simulator import Metrics, measure
from controller.simulator.runs import make
from controller.simulator.traces import read
from controller.vocabulary import Cluster

PRINTED = {
    "muri-replica:srtf": (6380.264989, 51192.782420, 42882.782420),
    "muri-replica:srsf": (6632.827110, 48584.441150, 40274.441150),
    "muri-replica:tiresias": (8562.861752, 46557.168220, 44787.467600),
    "muri-replica:antman": (24135.185162, 80198.167725, 69832.167725),
    "muri-replica:muri-s": (8288.274824, 43928.759376, 42999.759376),
    "muri-replica:muri-s-keep": (8370.035352, 44385.852306, 41396.960916),
    "muri-replica:muri-l": (8463.551485, 43543.320775, 40329.463752),
    "muri-replica:muri-l-keep": (8769.404984, 44111.583593, 41482.764065),
    "muri-replica:muri-l-worst": (10851.683743, 55566.865566, 47549.430461),
    "muri-replica:muri-l-in-order": (9440.419753, 46050.130856, 45121.130856),
}


def run(name: str, trace: Path, cluster: Cluster, *, verify: bool = False) -> Metrics:
    policy, settings = resolved(name)
    setup = make(policy, SimulationConfig(cluster, settings=settings))
    return measure(setup.run(read(trace, cluster), cluster, verify=verify))


@pytest.mark.parametrize("name", PRINTED)
def test_figures_are_the_public_simulators_to_the_digit(name: str) -> None:
    metrics = run(name, TRACE, Cluster.uniform(2, 8), verify=True)
    assert (metrics.avg_jct_s, metrics.makespan_s, metrics.p99_jct_s) == pytest.approx(
        PRINTED[name], abs=1e-5
    )


PUBLISHED = {
    ("trace3", "muri-replica:srtf"): (193081.80, 8174135, 4538891),
    ("trace3", "muri-replica:srsf"): (185021.88, 8174135, 4189699),
    ("trace3", "muri-replica:tiresias"): (347213.25, 8174226, 4983397),
    ("trace3", "muri-replica:antman"): (305453.94, 8174140, 3904421),
    ("trace3", "muri-replica:muri-s-keep"): (85502.55, 8174135, 992405),
    ("trace3", "muri-replica:muri-s"): (83242.46, 8174135, 947437),
    ("trace3", "muri-replica:muri-l"): (88686.97, 8174135, 926787),
    ("trace3_pr", "muri-replica:srtf"): (844395, 7261796, 6363100),
    ("trace3_pr", "muri-replica:tiresias"): (2213110, 6761641, 6739569),
    ("trace3_pr", "muri-replica:antman"): (2674393, 5799635, 5772255),
}


@pytest.mark.slow
@pytest.mark.skipif("INA_TRACES" not in os.environ, reason="INA_TRACES names no folder with muri/trace3.csv")
@pytest.mark.parametrize(("trace", "name"), PUBLISHED)
def test_figures_are_the_authors_on_their_traces(trace: str, name: str) -> None:
    path = Path(os.environ["INA_TRACES"]) / "muri" / f"{trace}.csv"
    metrics = run(name, path, Cluster.uniform(8, 8))
    found = (metrics.avg_jct_s, metrics.makespan_s, metrics.p99_jct_s)
    assert found == pytest.approx(PUBLISHED[trace, name], rel=2e-7, abs=0.6)


@pytest.mark.parametrize("iteration_ms", [11, 21, 22, 25, 27])
def test_iterations_are_rounded_as_in_milliseconds(iteration_ms: int) -> None:
    """On trace4_pr jobs that tie there did not tie here, which moved SRTF's average by 0.05 %."""
    assert longer_s(iteration_ms / 1000, ALONE) == iteration_ms * ALONE / 1000
    assert iteration_ms / 1000 * ALONE != iteration_ms * ALONE / 1000
