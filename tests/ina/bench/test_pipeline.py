"""The traffic of `ina bench pipeline` is aggregated by every program that it is for."""

from __future__ import annotations

import pytest

import softswitch
from ina.bench.pipeline import bench_pipeline
from softswitch.engine.bench import FrameLoop
from softswitch.engine.pipeline import PipelineError
from tests.programs import p4src_program


@pytest.mark.parametrize("name", ["exclusive", "shared"])
def test_the_benchmark_counts_what_it_sends(name: str) -> None:
    result = bench_pipeline(p4src_program(name, LANES=32), contributors=2, burst=8, rounds=2, round_s=0.01)
    assert result.lanes == 32
    assert 1e9 / result.bare_ns_per_packet > result.packets_per_s > result.interpreter_packets_per_s > 0
    if name == "exclusive":
        assert result.copies_per_packet == 1.0
        assert result.completed_share == 1.0
        assert result.collided_share == result.evicted_share == 0


def test_the_loop_in_c_is_for_compiled_pipelines() -> None:
    pipeline = softswitch.load(p4src_program("exclusive", LANES=32), backend="interpreter")
    with pytest.raises(PipelineError, match="needs a compiled pipeline, not Interpreter"):
        FrameLoop(pipeline, [], replicas=[], number_offset=0, number_step=1)
