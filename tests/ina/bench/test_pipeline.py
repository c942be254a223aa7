"""The traffic of `ina bench pipeline` is aggregated by every program that it is for."""

from __future__ import annotations

import pytest

import softswitch
from controller.errors import ProgramMismatch
from ina.bench.frame_loop import FrameLoop
from ina.bench.pipeline import Traffic, admit_by_hand, admit_jobs, bench_pipeline
from softswitch.engine.pipeline import Copy, PipelineError
from tests.programs import P4SRC, p4src_program, program_of


@pytest.mark.parametrize("name", ["exclusive", "shared"])
def test_the_benchmark_counts_what_it_sends(name: str) -> None:
    result = bench_pipeline(p4src_program(name, LANES=32), contributors=2, burst=8, rounds=2, round_s=0.01)
    assert result.lanes == 32
    assert 1e9 / result.bare_ns_per_packet > result.packets_per_s > result.interpreter_packets_per_s > 0
    assert (result.by_hand_ns_per_packet is None) == (name == "shared")
    if name == "exclusive":
        assert result.copies_per_packet == 1.0
        assert result.completed_share == 1.0
        assert result.collided_share == result.evicted_share == 0


def test_a_program_without_aggregation_is_refused() -> None:
    program = program_of(P4SRC.parent / "tests" / "p4" / "basic_tables" / "program.p4")
    with pytest.raises(ProgramMismatch, match="is not one for aggregation: it lacks table"):
        bench_pipeline(program, contributors=2, burst=8, rounds=1, round_s=0.01)


def test_the_program_by_hand_gives_the_same_results() -> None:
    """Sums twice in the same slots, the second time beyond int32; a contribution again; a stranger's."""
    lanes, traffic = 32, Traffic(jobs=1, contributors=3, region_slots=4, burst=4)
    by_hand = admit_by_hand(traffic, lanes)
    pipeline = softswitch.load(p4src_program("exclusive", LANES=lanes), backend="compiled")
    admit_jobs(pipeline, traffic)
    results = 0
    frames = traffic.frames(lanes)
    large = [
        (frame[:46] + (4 + frame[49]).to_bytes(4, "big") + frame[50:70] + b"\x7f" * 128, port)
        for frame, port in frames
    ]
    for frame, port in [*frames, frames[0], (frames[1][0], 50), *large, frames[2]]:
        packet, verdict = pipeline.ingress(frame, port)
        expected = []
        for replica, rid in traffic.replicas() if verdict.mcast_grp else []:
            copy, _ = pipeline.egress(pipeline.copy_packet(packet), Copy(egress_port=replica, egress_rid=rid))
            expected.append(copy)
        assert by_hand.process(frame, port) == expected
        results += len(expected)
    assert results == 2 * 4 * 3


def test_the_loop_in_c_is_for_compiled_pipelines() -> None:
    pipeline = softswitch.load(p4src_program("exclusive", LANES=32), backend="interpreter")
    with pytest.raises(PipelineError, match="needs a compiled pipeline, not Interpreter"):
        FrameLoop(pipeline, [], replicas=[], number_offset=0, number_step=1)
