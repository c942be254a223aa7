"""Threads that divide packets by their slots leave what one thread leaves; the thread sanitizer is silent."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ina.bench import frame_loop
from ina.bench.pipeline import Traffic, admit_jobs
from softswitch.compiler import compile_source, ir
from softswitch.engine.build import FLAGS, build_c
from softswitch.engine.compiled import CompiledPipeline
from softswitch.engine.emit_c import emit_c
from softswitch.engine.pipeline import PipelineError
from tests.programs import p4src_program
from tests.softswitch.lowering import lowered, source
from tests.softswitch.script_program import RUNTIME, have_compiler
from tests.softswitch.test_engine_sanitized import CC, TSAN, thread_sanitizer_works

BENCH = Path(frame_loop.__file__).parent
QUICK = tuple("-O0" if flag == "-O3" else flag for flag in FLAGS)
PSN_AT = 46
LANES = 32
pytestmark = pytest.mark.skipif(not have_compiler, reason="no C compiler")


def words(packed: bytes, least: int) -> str:
    numbers = [int.from_bytes(packed[at : at + 8], "little") for at in range(0, len(packed), 8)]
    return ", ".join(f"{number:#x}" for number in [*numbers, *[0] * (least - len(numbers))])


class Noted(CompiledPipeline):
    """A pipeline that notes the words of the entries that it gets."""

    entries_of_c: list[str]

    def insert(self, table: str, entry: ir.ConstEntry) -> None:
        state = self._table(table)
        match, action, args = self._words(state, entry)
        row = f"{{{state.id}, {{{words(match, 8)}}}, {action}, {{{words(args, 40)}}}}}"
        self.entries_of_c = [*getattr(self, "entries_of_c", []), row]
        super().insert(table, entry)


def traffic_header(program: ir.Program, traffic: Traffic) -> Iterator[str]:
    """Yield traffic.h: frames as they are in the bench, and the entries of their jobs."""
    noted = Noted(program, build_c(emit_c(program), flags=QUICK))
    admit_jobs(noted, traffic)
    frames, memory = traffic.frames(LANES), bytearray()
    yield f"#define FRAMES {len(frames)}"
    yield f"#define REPLICAS {len(traffic.replicas())}"
    yield f"#define NUMBER_OFFSET {PSN_AT}"
    yield f"#define NUMBER_STEP {traffic.burst}"
    rows = []
    for frame, port in frames:
        rows.append(f"{{{len(memory)}, {len(frame)}, {port}}}")
        memory += frame + bytes(-len(frame) % 64)
    yield f"static const struct bench_frame frames[] = {{{', '.join(rows)}}};"
    yield f"static const uint8_t frame_bytes[] = {{{', '.join(map(str, memory))}}};"
    pairs = ", ".join(f"{{{port}, {rid}}}" for port, rid in traffic.replicas())
    yield f"static const struct bench_replica replicas[] = {{{pairs}}};"
    yield "static const struct { uint32_t table; uint64_t match[8]; uint32_t action; uint64_t args[40]; }"
    yield f"entries[] = {{{', '.join(noted.entries_of_c)}}};"


@pytest.mark.parametrize(
    ("name", "jobs", "threads"), [("exclusive", 1, 2), ("exclusive", 1, 3), ("shared", 4, 2)]
)
def test_threads_meet_no_register_in_common(name: str, jobs: int, threads: int, tmp_path: Path) -> None:
    """With the thread sanitizer, where there is one. What collides in shared.p4 depends on the order."""
    program = p4src_program(name, LANES=LANES, SLOTS=1024)
    (tmp_path / "program.c").write_text(emit_c(program))
    traffic = Traffic(jobs, 4, 512, 32)
    (tmp_path / "traffic.h").write_text("\n".join(traffic_header(program, traffic)) + "\n")
    flags = TSAN if thread_sanitizer_works(tmp_path) else []
    options = [
        "-std=gnu11",
        "-O1",
        "-g1",
        *flags,
        "-pthread",
        "-D_GNU_SOURCE",
        f"-I{RUNTIME}",
        f"-I{BENCH}",
        f"-I{tmp_path}",
    ]
    driver = tmp_path / "driver"
    here = Path(__file__).with_name("pipeline_threads.c")
    subprocess.run([CC, *options, "-o", str(driver), str(here)], check=True)
    command = [str(driver), str(threads), "60", str(int(name == "exclusive"))]
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == ("0 0 0\n" if name == "exclusive" else "")


KEEPS = """
    counter(4, CounterType.packets) c; direct_counter(CounterType.packets) d;
    register<bit<8>>(256) r; bit<8> x;
    action go(bit<8> to) { meta.x = to; d.count(); }
    action none() { meta.x = 99; d.count(); }
    table t { key = { hdr.h.b: exact; } actions = { go; none; } default_action = none; counters = d; }
"""
DOES = """
    r.read(x, (bit<32>)hdr.h.a); r.write((bit<32>)hdr.h.a, x + 1); c.count(1); t.apply(); hdr.h.c = meta.x;
    digest(1, hdr.h.a);
"""


def divided(threads: int = 3) -> tuple[CompiledPipeline, list[int]]:
    program = lowered(DOES, locals=KEEPS)
    pipeline = CompiledPipeline(program, build_c(emit_c(program), flags=QUICK))
    return pipeline, list(pipeline.divide(threads))


def entry(key: int, to: int) -> ir.ConstEntry:
    return ir.ConstEntry((ir.Pattern("exact", key),), ir.Invocation("C.go", (to,)), 0)


class On:
    """Sends packets through the pipeline of one thread."""

    def __init__(self, pipeline: CompiledPipeline, states: list[int]) -> None:
        self.pipeline, self.states = pipeline, states

    def send(self, thread: int, frame: bytes) -> int:
        """Return what ingress put into ``hdr.h.c``."""
        first, self.pipeline._state = self.pipeline._state, self.states[thread]
        try:
            packet, _ = self.pipeline.ingress(frame, 1)
            return self.pipeline.metadata(packet, ["x"])["x"]
        finally:
            self.pipeline._state = first


def test_what_is_written_is_written_for_each_thread_and_what_is_counted_is_summed() -> None:
    pipeline, states = divided()
    assert len(set(states)) == 3
    on = On(pipeline, states)
    pipeline.insert("C.t", entry(1, 11))
    assert [on.send(thread, bytes((5, 1, 0, 0))) for thread in range(3)] == [11, 11, 11]
    pipeline.modify("C.t", entry(1, 12))
    assert [on.send(thread, bytes((5, 1, 0, 0))) for thread in range(3)] == [12, 12, 12]
    assert pipeline.read_register("C.r", 5) == 6, "registers are everybody's"
    assert pipeline.read_counter("C.c", 1)[0] == 6
    assert pipeline.read_counters("C.c")[1][0] == 6
    assert pipeline.read_direct_counter("C.t", entry(1, 0))[0] == 6
    assert [values for _, values in pipeline.take_digests()] == [(5,)] * 6
    assert pipeline.take_digests() == []
    pipeline.write_counter("C.c", 1, 100, 7)
    pipeline.write_direct_counter("C.t", entry(1, 0), 50, 9)
    on.send(2, bytes((5, 1, 0, 0)))
    assert pipeline.read_counter("C.c", 1) == (101, 11)
    assert pipeline.read_direct_counter("C.t", entry(1, 0)) == (51, 13)
    pipeline.set_default("C.t", ir.Invocation("C.go", (77,)))
    pipeline.delete("C.t", entry(1, 0))
    assert [on.send(thread, bytes((5, 1, 0, 0))) for thread in range(3)] == [77, 77, 77]


def test_a_thread_that_comes_later_finds_the_entries_that_are_there() -> None:
    pipeline, _ = divided(1)
    pipeline.insert("C.t", entry(1, 11))
    pipeline.set_default("C.t", ir.Invocation("C.go", (3,)))
    on = On(pipeline, list(pipeline.divide(2)))
    assert [on.send(1, bytes((5, key, 0, 0))) for key in (1, 2)] == [11, 3]
    assert list(pipeline.divide(2)) == on.states, "no third one"


def test_a_program_for_one_thread_is_not_divided() -> None:
    program = compile_source(source("r.read(x, 3);", locals=KEEPS), name="one.p4")
    pipeline = CompiledPipeline(program, build_c(emit_c(program), flags=QUICK))
    assert len(pipeline.divide(1)) == 1
    with pytest.raises(PipelineError, match=r"on one thread: the index of C\.r is the same"):
        pipeline.divide(2)
