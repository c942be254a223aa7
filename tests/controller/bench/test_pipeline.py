"""The traffic of `ina bench pipeline` is aggregated by every program that it is for."""

from __future__ import annotations

import pytest

import softswitch
from controller.bench.pipeline import bench_pipeline
from controller.programs import locate
from softswitch.engine.bench import FrameLoop
from softswitch.engine.pipeline import PipelineError


@pytest.mark.parametrize("name", ["exclusive", "shared"])
def test_the_benchmark_counts_what_it_sends(name: str) -> None:
    path, defines = locate(name, lanes=32)
    program = softswitch.compile_file(path, defines=defines)
    result = bench_pipeline(program, contributors=2, burst=8, rounds=2, round_s=0.01)
    assert result.lanes == 32
    assert 1e9 / result.bare_ns_per_packet > result.packets_per_s > result.interpreter_packets_per_s > 0
    if name == "exclusive":
        assert result.copies_per_packet == 1.0
        assert result.completed_share == 1.0
        assert result.collided_share == result.evicted_share == 0


def test_the_loop_in_c_is_for_compiled_pipelines() -> None:
    path, defines = locate("exclusive", lanes=32)
    pipeline = softswitch.load(softswitch.compile_file(path, defines=defines), backend="interpreter")
    with pytest.raises(PipelineError, match="needs a compiled pipeline, not Interpreter"):
        FrameLoop(pipeline, [], replicas=[], number_offset=0, number_step=1)
