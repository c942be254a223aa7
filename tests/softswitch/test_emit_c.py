"""Building and loading: what is cached, and what happens without a compiler.

Headers whose bytes are put in order many at a time (`emit_c/wire.py`) are what the interpreter says.

Statements spelled out lane by lane: they become loops over interleaved registers, and mean the same.

What the compiled pipeline fetches for packets whose turn is yet to come, and that it changes nothing.

Tables that decide alike, one after the other: compiled to one decision where that makes no difference.
"""

from __future__ import annotations

import platform
import random
import re
import struct
import subprocess
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random

import numpy as np
import pytest

import softswitch
from softswitch.compiler import compile_source, ir, preprocess_file
from softswitch.engine import build as building
from softswitch.engine import c_compiler, native
from softswitch.engine.build import FLAGS, RUNTIME, build, find_compiler, load
from softswitch.engine.cache import emit_once
from softswitch.engine.compiled import CompiledPipeline
from softswitch.engine.emit_c import emit_c
from softswitch.engine.emit_c.unit import make_unit
from softswitch.engine.emit_c.v1model import V1MODEL
from softswitch.engine.emit_c.wire import stretches, windows
from softswitch.engine.interpreter import Interpreter
from softswitch.engine.pipeline import BuildFailed, Copy, NoCompiler, Pipeline
from softswitch.engine.ports import parse_port
from softswitch.engine.switch import Switch
from tests.programs import p4src_program, program_of
from tests.softswitch import ir_programs as hand
from tests.softswitch.differential.compare import Pair
from tests.softswitch.differential.stimuli import internet_checksum
from tests.softswitch.differential.traffic import Sent
from tests.softswitch.differential.trial import QUICK
from tests.softswitch.tofino.programs import frame, program

FEATURES = sorted((Path(__file__).parent / "features").glob("*.p4"))
EXCLUSIVE = Path(__file__).parents[2] / "p4src" / "exclusive.p4"


def script(path: Path, text: str) -> str:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_a_second_build_takes_the_first_ones_object(cache_folder: Path) -> None:
    program = hand.lanes_program(8)
    first = build(program)
    stamp = first.stat().st_mtime_ns
    assert build(program) == first
    assert first.stat().st_mtime_ns == stamp
    assert build(hand.lanes_program(9)) != first
    assert {path.suffix for path in cache_folder.iterdir()} == {".so", ".c"}


def test_another_compiler_does_not_get_the_old_object(
    cache_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = hand.lanes_program(8)
    first = build(program)
    real = find_compiler()
    wrapper = f'if [ "$1" = --version ]; then echo other; else exec {real} "$@"; fi'
    monkeypatch.setenv("CC", script(tmp_path / "other-cc", wrapper))
    assert build(program) != first


def test_builds_at_the_same_time_all_succeed(cache_folder: Path) -> None:
    program = hand.lanes_program(10)
    with ThreadPoolExecutor(4) as pool:
        paths = list(pool.map(lambda _: build(program), range(4)))
    assert len(set(paths)) == 1
    assert isinstance(CompiledPipeline(program, paths[0]), CompiledPipeline)


def test_nobody_else_can_hold_up_a_build(cache_folder: Path) -> None:
    """Who may read a file can hold its lock, for ever."""
    cache_folder.mkdir(mode=0o755)  # by the user; ours are for nobody else anyway
    build(hand.lanes_program(8))
    assert {path.stat().st_mode & 0o077 for path in cache_folder.iterdir()} == {0}


@pytest.mark.parametrize(
    ("does", "said"),
    [
        (
            'echo "In x:" >&2; echo "x.c:1: fatal error: stdio.h: No such file or directory" >&2; exit 1',
            "ended with status 1: x.c:1: fatal error: stdio.h: No such file or directory: the C library's"
            " headers are missing; install them (Debian: libc6-dev)\n",
        ),
        ('echo "no disk" >&2; exit 1', "ended with status 1: no disk\nits command: /"),
        ("kill -9 $$", "was ended by signal 9: it printed no message: was there too little memory?\n"),
        (
            "echo \"cc1: error: bad value 'native' for '-march=' switch\" >&2; exit 1",
            "for '-march=' switch: the compiler does not know this processor;"
            " set CC to a newer GCC or Clang\n",
        ),
    ],
)
def test_a_compiler_that_is_there_and_fails_is_told_with_what_to_do(
    does: str, said: str, cache_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CC", script(tmp_path / "cc", f'[ "$1" = --version ] && exit 0; {does}'))
    with pytest.raises(BuildFailed) as failed:
        build(hand.lanes_program(8))
    assert f"the C compiler {tmp_path}/cc is there, but " in str(failed.value)
    assert said in str(failed.value)
    assert list(cache_folder.iterdir()) == []


def test_a_compiler_that_does_not_even_tell_its_version_is_told_with_its_words(
    cache_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = script(tmp_path / "cc", 'echo "cc: error: libisl.so.23: cannot open" >&2; exit 127')
    monkeypatch.setenv("CC", broken)
    said = (
        f"the C compiler {broken} does not work"
        " ('--version' ended with status 127: cc: error: libisl.so.23: cannot open)"
    )
    with pytest.raises(NoCompiler) as failed:
        build(hand.lanes_program(8))
    assert str(failed.value) == said
    native._library.cache_clear()  # an engine that an earlier test has loaded needs no compiler
    with pytest.raises(NoCompiler, match=r"the C compiler .*/cc does not work"):
        Switch({1: parse_port("shm")})


def test_a_compiler_that_writes_nothing_is_none(cache_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "echo")
    with pytest.raises(BuildFailed, match=r"wrote no pipeline\.so"):
        build(hand.lanes_program(8))


def test_without_a_compiler_the_program_is_interpreted_with_a_warning(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    program = hand.lanes_program(8)
    with pytest.raises(NoCompiler, match="no-such-compiler is not on PATH"):
        load(program, backend="compiled")
    pipeline = load(program)
    assert isinstance(pipeline, Interpreter)
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("softswitch.engine.build", "WARNING")
    assert "the program is interpreted" in record.getMessage()


def test_without_a_compiler_what_came_with_the_package_serves_if_it_fits_the_source(
    cache_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(c_compiler, "FOLDER", tmp_path / "built")
    (tmp_path / "built").mkdir()
    building._build_for_others(tmp_path / "built", f"{FEATURES[0]}:32")
    levels = sorted(file.name.partition("-")[2] for file in (tmp_path / "built").iterdir())
    assert levels == sorted(f"{level}.so" for level, _ in c_compiler.LEVELS[platform.machine()])
    monkeypatch.setenv("CC", "no-such-compiler")
    text = preprocess_file(FEATURES[0])
    program = compile_source(text, name="by another name", preprocessed=True)
    found = build(program)
    assert found.name.endswith(f"-{c_compiler.levels()[0]}.so")
    CompiledPipeline(program, found)
    monkeypatch.setattr(c_compiler, "levels", lambda: c_compiler.LEVELS[platform.machine()][-1][:1])
    oldest = build(program)
    assert oldest.name == f"{found.name.partition('-')[0]}-{c_compiler.levels()[0]}.so"
    with pytest.raises(NoCompiler, match=r"install one \(Debian: gcc libc6-dev"):
        build(compile_source(preprocess_file(FEATURES[1]), preprocessed=True))
    oldest.write_bytes(oldest.read_bytes()[:-1])
    with pytest.raises(NoCompiler):
        build(program)


def test_without_a_compiler_an_object_that_one_has_built_serves(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = hand.lanes_program(8)
    built = build(program)
    monkeypatch.setenv("CC", "no-such-compiler")
    assert build(program) == built
    with pytest.raises(NoCompiler):
        build(hand.lanes_program(9))


@pytest.mark.parametrize("source", [*FEATURES, EXCLUSIVE], ids=lambda path: path.stem)
def test_the_c_text_has_no_warnings(
    source: Path, tmp_path: Path, write_file: Callable[[str, str], Path]
) -> None:
    text = write_file("pipeline.c", emit_once(program_of(source)))
    flags = [flag for flag in FLAGS if flag not in ("-O3", "-shared")]
    command = [find_compiler(), *flags, "-O1", "-Wall", "-Wextra", "-Werror", "-I", str(RUNTIME)]
    done = subprocess.run(
        [*command, "-c", "-o", str(tmp_path / "pipeline.o"), str(text)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


IPV4 = (4, 4, 6, 2, 16, 16, 3, 13, 8, 8, 16, 32, 32)
SHAPES: dict[str, tuple[int, ...]] = {
    "ipv4": IPV4,
    "ethernet": (48, 48, 16),
    "only-a-mac-address": (48,),
    "arp": (16, 16, 8, 8, 16, 48, 32, 48, 32),
    "twenty-eight-bytes": (4, 4, 8, 16, 32, 32, 8, 8, 8, 8, 16, 16, 32, 16, 16),
    "bytes-in-pairs-and-alone": (8, 8, 8, 16, 8, 8, 8, 32, 8, 8, 64, 8),
    "a-window-that-ends-inside-a-field": (8, 8, 16, 32, 16, 64, 16, 32, 16, 64),
    "a-header-that-ends-inside-a-window": (16, 32, 16, 32, 16, 16, 16, 16),
    "fields-that-are-no-cells": (24, 8, 40, 16, 56, 8, 8, 128, 16, 16, 3, 21, 8, 20, 12),
    "integers-between-bytes": (3, 8, 16, 5, 32, 4, 64, 12, 1, 8, 7, 16, 16, 48, 16),
    "small-fields": (1, 15, 7, 1, 5, 11, 1, 1, 1, 5, 2, 6, 4, 12, 9, 7),
}


def random_shape(seed: int) -> tuple[int, ...]:
    random = Random(seed)
    widths: list[int] = []
    for _ in range(random.randint(3, 12)):
        widths += random.choice(
            ((8,), (8, 8), (16,), (16, 16), (32,), (32,), (48,), (64,), (4, 4), (3, 13), (24,))
        )
    return tuple(widths)


def cells_program(widths: Sequence[int]) -> str:
    """A header of such fields and a checksum; the first byte says which field is changed, and how."""
    fields = [f"f{n}" for n in range(len(widths))]
    declared = "".join(f"    bit<{width}> {name};\n" for name, width in zip(fields, widths, strict=True))
    changes = "".join(
        f"        if (hdr.op.field == {n}) {{ hdr.a.{name} = hdr.a.{name} + (bit<{width}>)hdr.op.more; }}\n"
        for n, (name, width) in enumerate(zip(fields, widths, strict=True))
    )
    data = ", ".join(f"hdr.a.{name}" for name in fields)
    return f"""
#include <core.p4>
#include <v1model.p4>
header op_t {{ bit<8> field; bit<8> more; }}
header a_t {{
{declared}    bit<16> sum;
}}
struct headers_t {{ op_t op; a_t a; a_t b; }}
struct metadata_t {{ }}
parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t s) {{
    state start {{ packet.extract(hdr.op); packet.extract(hdr.a); transition accept; }}
}}
control V(inout headers_t hdr, inout metadata_t meta) {{
    apply {{ verify_checksum(hdr.a.isValid(), {{ {data} }}, hdr.a.sum, HashAlgorithm.csum16); }}
}}
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t s) {{
    apply {{
        s.egress_spec = s.checksum_error == 1 ? 9w2 : 9w3;
        hdr.b = hdr.a;
{changes}    }}
}}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t s) {{
    apply {{ if (hdr.a == hdr.b) {{ hdr.op.more = 0; }} }}
}}
control C(inout headers_t hdr, inout metadata_t meta) {{
    apply {{ update_checksum(hdr.a.isValid(), {{ {data} }}, hdr.a.sum, HashAlgorithm.csum16); }}
}}
control D(packet_out packet, in headers_t hdr) {{ apply {{ packet.emit(hdr); }} }}
V1Switch(P(), V(), I(), E(), C(), D()) main;
"""


def frames(widths: Sequence[int], random: Random) -> Iterator[bytes]:
    size = sum(widths) // 8
    for field in range(len(widths)):
        for data in (random.randbytes(size), bytes(size), b"\xff" * size):
            op = bytes((field, random.choice((0, 1, 255))))
            right = internet_checksum(data).to_bytes(2)
            for checksum in (right, random.randbytes(2), bytes(2), b"\xff\xff"):
                yield op + data + checksum + random.randbytes(random.randint(0, 3))
    yield b"\x00\x00" + random.randbytes(size + 1)  # too short


def compare(widths: Sequence[int], flags: tuple[str, ...]) -> None:
    pair = Pair(compile_source(cells_program(widths), name="cells.p4"), flags=flags)
    sent = [pair.send(frame, 1) for frame in frames(widths, Random(1))]
    assert {packet.port for packets in sent for packet in packets} == {2, 3}


@pytest.mark.parametrize("shape", SHAPES)
def test_fields_and_checksums_of_headers_of_many_shapes(shape: str) -> None:
    compare(SHAPES[shape], FLAGS)


@pytest.mark.parametrize("seed", range(6))
def test_fields_and_checksums_of_random_headers(seed: int) -> None:
    compare(random_shape(seed), QUICK)


def test_an_ipv4_header_is_one_window_and_a_field() -> None:
    unit = make_unit(compile_source(cells_program(IPV4), name="cells.p4"), V1MODEL)
    (layout,) = (layout for layout in unit.headers.values() if layout.type.name == "a_t")
    (stretch,) = stretches(layout)
    first, second = windows(stretch[:-1])  # without the checksum of this test
    assert first.order == (1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 15, 14, 13, 12)
    assert second == stretch[-2]


OVERWRITE, ADD, FETCH = 1, 2, 3
SLOTS = 16
LANES = 64
VALUES = ir.Header("values_t", tuple((f"v{i}", hand.B32) for i in range(LANES)))
ONLY_VALUES = ir.Struct("headers_t", (("values", VALUES),))


def packet(op: int, index: int, lanes: np.ndarray) -> bytes:
    return struct.pack(">BBI", op, 0, index) + lanes.astype(lanes.dtype.newbyteorder(">")).tobytes() + b"tail"


def through(pipeline: Pipeline, frame: bytes) -> bytes:
    made, _ = pipeline.ingress(frame, 1)
    out, _ = pipeline.egress(made, Copy(egress_port=2))
    return out


def lanes_of(frame: bytes, like: np.ndarray) -> np.ndarray:
    assert frame.endswith(b"tail")
    return np.frombuffer(frame[6:-4], dtype=like.dtype.newbyteorder(">")).astype(like.dtype)


@pytest.mark.parametrize("width", [8, 16, 32, 64])
@pytest.mark.parametrize("lanes", [7, 8, 33, 256])
def test_overwrite_add_and_fetch(lanes: int, width: int) -> None:
    pipeline = load(hand.lanes_program(lanes, slots=SLOTS, width=width), backend="compiled")
    random = np.random.default_rng(lanes + width)
    dtype = np.dtype(f"u{width // 8}")
    slots = np.zeros((SLOTS, lanes), dtype)
    for _ in range(60):
        op, index = int(random.integers(1, 4)), int(random.integers(0, SLOTS))
        values = random.integers(0, np.iinfo(dtype).max, lanes, dtype, endpoint=True)
        out = through(pipeline, packet(op, index, values))
        before = slots[index].copy()
        if op == OVERWRITE:
            slots[index] = values
            assert (lanes_of(out, values) == values).all()
            continue
        if op == ADD:
            slots[index] += values
            signs = (before ^ slots[index]) & (values ^ slots[index])
            assert out[1] == int((signs >> dtype.type(width - 1)).any())
        assert (lanes_of(out, values) == slots[index]).all()
    for index in range(SLOTS):
        stored = [pipeline.read_register(f"lane_{lane}", index) for lane in range(lanes)]
        assert stored == slots[index].tolist()


@pytest.mark.parametrize("op", [OVERWRITE, ADD, FETCH])
@pytest.mark.parametrize("index", [SLOTS, 2**32 - 1])
def test_a_slot_that_does_not_exist_reads_zero_and_keeps_nothing(op: int, index: int) -> None:
    pipeline = load(hand.lanes_program(64, slots=SLOTS), backend="compiled")
    values = np.arange(64, dtype=np.uint32)
    out = through(pipeline, packet(op, index, values))
    assert (lanes_of(out, values) == (0 if op == FETCH else values)).all()
    assert not any(pipeline.read_register(f"lane_{lane}", i) for lane in range(64) for i in range(SLOTS))


@pytest.mark.parametrize("op", [OVERWRITE, ADD, FETCH])
def test_a_packet_without_its_lanes_sees_them_as_zero(op: int) -> None:
    """The fields of a header that was never valid are zero, not those of the packet before."""
    pipeline = load(hand.lanes_program(64, slots=SLOTS), backend="compiled")
    values = np.arange(1, 65, dtype=np.uint32)
    through(pipeline, packet(OVERWRITE, 3, values))
    short = packet(op, 3, values)[:20]
    assert through(pipeline, short) == short
    kept = [pipeline.read_register(f"lane_{lane}", 3) for lane in range(64)]
    assert kept == ([0] * 64 if op == OVERWRITE else values.tolist())


def test_a_large_header_made_valid_is_zero_until_assigned() -> None:
    hdr = ir.Struct("headers_t", (("mark", ir.Header("mark_t", (("x", hand.B8),))), ("values", VALUES)))
    root = hand.var("hdr", hdr)
    grow = hand.binary("==", hand.path(root, "mark", "x"), hand.const(1, hand.B8), ir.Bool())
    body = (
        ir.SetValidity(hand.path(root, "values"), True, pos=hand.POS),
        hand.assign(hand.path(root, "values", "v5"), hand.const(7)),
    )
    program = hand.program(
        hdr=hdr, extracts=["mark", "values"], ingress=[ir.If(grow, body, (), pos=hand.POS)]
    )
    pipeline = load(program, backend="compiled")
    whole = b"\0" + bytes(range(256))
    assert through(pipeline, whole) == whole
    grown = through(pipeline, b"\1")
    assert grown == b"\1" + struct.pack(">64I", *(7 if lane == 5 else 0 for lane in range(64)))


def test_copies_of_a_packet_have_their_own_lanes() -> None:
    pipeline = load(hand.lanes_program(64, slots=SLOTS), backend="compiled")
    values = np.arange(64, dtype=np.uint32)
    through(pipeline, packet(OVERWRITE, 1, values))
    summed, _ = pipeline.ingress(packet(ADD, 1, values), 1)
    twin = pipeline.copy_packet(summed)
    expected = packet(ADD, 1, 2 * values)
    assert pipeline.egress(summed, Copy(egress_port=2))[0] == expected
    assert pipeline.egress(twin, Copy(egress_port=3))[0] == expected


def test_a_loan_writes_its_own_lanes_and_its_lender_keeps_its() -> None:
    """Ingress has written a lane, egress writes another: into storage, which a loan takes from its lender."""
    first, second = (hand.path(hand.var("hdr", ONLY_VALUES), "values", f"v{i}") for i in (1, 2))
    program = hand.program(
        hdr=ONLY_VALUES,
        extracts=["values"],
        ingress=[hand.assign(first, hand.binary("+", first, hand.const(1)))],
        egress=[hand.assign(second, hand.binary("+", second, first))],
    )
    pipeline = load(program, backend="compiled")
    lender, _ = pipeline.ingress(struct.pack(">64I", *range(64)), 1)
    loan, other = pipeline.lend_packet(lender), pipeline.lend_packet(lender)
    copy = pipeline.copy_packet(other)
    expected = struct.pack(">64I", 0, 2, 4, *range(3, 64))
    for each in (loan, copy, other, lender):
        assert pipeline.egress(each, Copy(egress_port=2))[0] == expected


@pytest.mark.parametrize("name", ["exclusive", "shared"])
@pytest.mark.parametrize("lanes", [32, 64, 256])
def test_a_program_keeps_a_slot_together(name: str, lanes: int) -> None:
    program = p4src_program(name, LANES=lanes)
    text = emit_once(program)
    slot = re.search(r"struct InaIngress_aggregator_slots \{(.*?)\n\}", text, re.DOTALL)
    registers = [full.rsplit(".", 1)[-1] for full in program.registers]
    states = [register for register in registers if register.startswith("slot_")]
    moves = [register for register in registers if register.startswith("change_")]
    assert len(states) == len(registers) - lanes - len(moves) >= 6
    for state in states:
        assert f" {state};" in slot[1]
    assert f"lane_0_to_lane_{lanes - 1}[{lanes}]" in slot[1]
    assert len(text.splitlines()) < 5000  # lane by lane it would be tens of thousands


def test_a_register_that_every_lane_uses_is_carried_from_lane_to_lane() -> None:
    """Each lane adds to one running total, which the next lane reads: no loop may reorder that."""
    root, index, total = hand.var("hdr", ONLY_VALUES), hand.const(0), hand.var("total")
    body: list[ir.Stmt] = []
    for lane in range(LANES):
        value = hand.path(root, "values", f"v{lane}")
        body += [
            hand.read("sum", total, index),
            hand.assign(total, hand.binary("+", total, value)),
            hand.write("sum", index, total),
            hand.write(f"prefix_{lane}", index, total),
        ]
    registers = [
        ir.Register(name, hand.B32, 4, pos=hand.POS)
        for name in ("sum", *(f"prefix_{i}" for i in range(LANES)))
    ]
    program = hand.program(
        hdr=ONLY_VALUES, extracts=["values"], ingress=body, variables={"total": hand.B32}, registers=registers
    )
    pipeline = load(program, backend="compiled")
    numbers = np.arange(1, LANES + 1, dtype=np.uint32)
    pipeline.ingress(numbers.astype(">u4").tobytes(), 1)
    prefixes = [pipeline.read_register(f"prefix_{lane}", 0) for lane in range(LANES)]
    assert prefixes == np.cumsum(numbers).tolist()


def test_what_is_read_behind_a_loop_comes_out_of_it_and_the_rest_stays() -> None:
    """`done` is read behind the loop, `total` on both sides, `doubled` only from statement to statement."""
    root, index = hand.var("hdr", ONLY_VALUES), hand.const(0)
    total, done, doubled = (hand.var(name) for name in ("total", "done", "doubled"))
    body: list[ir.Stmt] = [hand.assign(total, hand.const(7))]
    for lane in range(LANES):
        value = hand.path(root, "values", f"v{lane}")
        body += [
            hand.assign(doubled, hand.binary("+", value, value)),
            hand.assign(done, hand.binary("+", doubled, value)),
            hand.assign(total, hand.binary("+", total, done)),
            hand.write(f"lane_{lane}", index, doubled),
        ]
    body += [hand.write("total", index, total), hand.write("done", index, done)]
    names = ("total", "done", *(f"lane_{i}" for i in range(LANES)))
    program = hand.program(
        hdr=ONLY_VALUES,
        extracts=["values"],
        ingress=body,
        variables=dict.fromkeys(("total", "done", "doubled"), hand.B32),
        registers=[ir.Register(name, hand.B32, 4, pos=hand.POS) for name in names],
    )
    text = emit_c(program)
    (result,) = set(re.findall(r"struct lanes_loop\w* \{\n(.*?)\n\};", text, re.DOTALL))
    assert re.findall(r"(\w+);", result) == ["done_2", "total"]
    pipeline = load(program, backend="compiled")
    pipeline.ingress(np.arange(1, LANES + 1, dtype=">u4").tobytes(), 1)
    assert pipeline.read_register("done", 0) == 3 * LANES
    assert pipeline.read_register("total", 0) == 7 + 3 * LANES * (LANES + 1) // 2
    assert [pipeline.read_register(f"lane_{i}", 0) for i in range(LANES)] == [2 * i + 2 for i in range(LANES)]


def test_whole_headers_compared_between_lanes_see_every_lane() -> None:
    """``a == b`` inside a run must see what the lanes before it have changed."""
    pair = ir.Header("pair_t", tuple((f"v{i}", hand.B32) for i in range(16)))
    hdr = ir.Struct("headers_t", (("a", pair), ("b", pair)))
    meta = ir.Struct("metadata_t", (("equal", hand.B32),))
    root, equal = hand.var("hdr", hdr), hand.path(hand.var("meta", meta), "equal")
    a, b = hand.path(root, "a"), hand.path(root, "b")
    body: list[ir.Stmt] = []
    for lane in range(16):
        same = hand.binary("==", a, b, ir.Bool())
        count = ir.Mux(hand.B32, same, hand.const(1), hand.const(0), pos=hand.POS)
        body += [
            hand.assign(hand.path(root, "a", f"v{lane}"), hand.path(root, "b", f"v{lane}")),
            hand.assign(equal, hand.binary("+", equal, count)),
        ]
    body.append(hand.assign(hand.path(root, "a", "v0"), equal))
    program = hand.program(hdr=hdr, meta=meta, extracts=["a", "b"], ingress=body)
    pipeline = load(program, backend="compiled")
    out = np.frombuffer(through(pipeline, bytes(64) + b"\1" * 64), dtype=">u4")
    assert out[0] == 1


PROGRAM = """
#include <core.p4>
#include <v1model.p4>
header first_t {{ bit<16> kind; bit<48> key; }}
header second_t {{ bit<32> address; }}
header long_t {{ {long} }}
struct headers_t {{ first_t first; second_t second; long_t long; second_t[2] stack; }}
struct metadata_t {{ bit<32> made; }}
parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {{
    state start {{
        packet.extract(hdr.first);
        transition select(hdr.first.kind) {{ 1: second; 2: long; 3: stack; default: accept; }}
    }}
    state second {{ packet.extract(hdr.second); transition accept; }}
    state long {{ packet.extract(hdr.long); transition accept; }}
    state stack {{ packet.extract(hdr.stack.next); transition stack; }}
}}
control V(inout headers_t hdr, inout metadata_t meta) {{ apply {{ }} }}
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {{
    action forward(bit<9> port) {{ sm.egress_spec = port; }}
    action drop() {{ mark_to_drop(sm); }}
    table t {{
        key = {{ {key}; }}
        actions = {{ forward; drop; }}
        default_action = drop();
        size = 1 << 20;
    }}
    apply {{ meta.made = hdr.second.address + 1; {apply} }}
}}
control D(packet_out packet, in headers_t hdr) {{ apply {{ packet.emit(hdr); }} }}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {{ apply {{ }} }}
V1Switch(P(), V(), I(), E(), V(), D()) main;
"""
LONG = " ".join(f"bit<32> word_{n};" for n in range(40))


def compiled(key: str, apply: str = "t.apply();") -> ir.Program:
    return softswitch.compile_source(PROGRAM.format(key=key, apply=apply, long=LONG), name="ahead.p4")


def ahead(program: ir.Program) -> str:
    """Return the C function that fetches, "" if there is none."""
    found = re.search(r"static void p4_ahead\(.*?\n}", emit_c(program), re.DOTALL)
    return found[0] if found else ""


@pytest.mark.parametrize(
    "key",
    [
        "hdr.first.key: exact",
        "hdr.second.address: lpm",
        "sm.ingress_port: exact",
        'hdr.first.kind ++ 8w1: exact @name("k")',
    ],
)
def test_entries_are_fetched_whose_keys_come_with_the_packet(key: str) -> None:
    assert ahead(compiled(key)).count("p4_fetch") == 1


@pytest.mark.parametrize(
    "key",
    [
        "meta.made: exact",
        "hdr.first.key: ternary",
        "hdr.long.word_3: exact",
        "hdr.stack[1].address: exact",
        "sm.egress_spec: exact",
    ],
)
def test_nothing_is_fetched_where_the_key_is_made_later_or_dear_to_find(key: str) -> None:
    assert ahead(compiled(key)) == ""


def test_conditions_that_come_with_the_packet_decide_what_is_fetched() -> None:
    text = ahead(
        compiled("hdr.first.key: exact", "if (hdr.second.isValid()) { drop(); } else { t.apply(); }")
    )
    assert re.search(r"if \(p->valid.hdr_second\) \{\s*}\s*else \{.*p4_fetch", text, re.DOTALL)
    text = ahead(compiled("hdr.first.key: exact", "if (meta.made == 2) { drop(); } else { t.apply(); }"))
    assert "p4_fetch" in text
    assert "made" not in text


def test_programs_that_aggregate_fetch_by_the_job_of_a_packet() -> None:
    source = Path(__file__).parents[2] / "p4src" / "exclusive.p4"
    program = softswitch.compile_file(source, defines={"LANES": "32"})
    assert "p4_fetch" in ahead(program)


def test_frames_are_forwarded_by_large_tables_as_by_small_ones() -> None:
    """Frames that wait are parsed twice, also those that are too short, and those whose parser never ends."""
    program = compiled("hdr.first.key: exact")
    pipeline = softswitch.load(program, backend="compiled")
    for number in range(20_000):
        entry = ir.ConstEntry(
            (ir.Pattern("exact", 3 * number),), ir.Invocation("I.forward", (1 + number % 2,)), 0
        )
        pipeline.insert("I.t", entry)
    rng = random.Random(4)
    frames = []
    for _ in range(500):
        key, kind = rng.randrange(61_000), rng.choice((0, 1, 2, 3))
        frame = kind.to_bytes(2, "big") + key.to_bytes(6, "big") + bytes(rng.randrange(300))
        frames.append(frame[: rng.choice((len(frame), rng.randrange(1, 9)))])
    with Switch({port: softswitch.parse_port("memory") for port in range(3)}) as switch:
        switch.load(pipeline)
        switch.inject(0, frames, now_us=0)
        got = {port: switch.drain(port) for port in (1, 2)}
    expected: dict[int, list[bytes]] = {1: [], 2: []}
    for frame in frames:
        _, verdict = pipeline.ingress(frame, 0)
        if not verdict.dropped:
            expected[verdict.egress_spec].append(frame)
    assert got == expected
    assert all(map(len, got.values()))


REGISTERS = "".join(f"Register<bit<16>, bit<1>>(2) r{i};" for i in range(3)) + "".join(
    f"""RegisterAction<bit<16>, bit<1>, bit<16>>(r{i}) add_{i} = {{
        void apply(inout bit<16> cell, out bit<16> result) {{ cell = cell + {i + 1}; result = cell; }} }};
    action count_{i}() {{ meta.counted = meta.counted + add_{i}.execute(0); }}
    action keep_{i}() {{ meta.kept = meta.kept + {1 << i}; }}
    """
    for i in range(3)
)
TABLE = """table t{0} {{
    key = {{ {1}: ternary; }}
    actions = {{ count_{0}; keep_{0}; NoAction; }}
    const default_action = {3};
    const entries = {{ {2} }}
}}"""
ROWS = "1: count_{0}(); 2 &&& 3: keep_{0}();"
METADATA = "bit<16> counted; bit<16> kept;"
TELL = "hdr.ethernet.src = meta.kept ++ meta.counted ++ 16w0; tm.ucast_egress_port = 2;"


def joined(*tables: str) -> tuple[Pair, str]:
    """Return a program with these tables, and what its ingress is as C."""
    source = program(
        metadata=METADATA,
        ingress_start="packet.extract(hdr.ethernet); meta = {...}; transition accept;",
        ingress_locals=REGISTERS + "".join(tables),
        ingress="".join(f"t{i}.apply();" for i in range(len(tables))) + TELL,
    )
    text = re.search(r"void run_ingress\(.*?\n}", emit_c(source), re.DOTALL)
    return Pair(source), text[0]


def test_one_decision_for_all_of_them_runs_their_actions_in_order() -> None:
    tables = [TABLE.format(i, "hdr.ethernet.kind", ROWS.format(i), "NoAction") for i in range(3)]
    pair, ingress = joined(*tables)
    assert "apply_" not in ingress
    for kind, src in ((1, 6 << 16), (2, 7 << 32), (1, 12 << 16), (6, 7 << 32), (3, 0)):
        assert pair.send(frame(kind=kind), 1) == [Sent(2, frame(src=src, kind=kind))]
    pair.compare_state()


@pytest.mark.parametrize(
    ("second", "why"),
    [
        (("hdr.ethernet.kind", ROWS.format(1), "keep_1"), ""),
        (("hdr.ethernet.kind", "2: keep_1(); 1: count_1();", "NoAction"), "other rows"),
        (("hdr.ethernet.dst", ROWS.format(1), "NoAction"), "another key"),
        (("meta.kept", ROWS.format(1), "NoAction"), "a key that an action changes"),
    ],
    ids=["another default", "other rows", "another key", "a key that an action changes"],
)
def test_tables_that_may_decide_otherwise_are_applied(second: tuple[str, str, str], why: str) -> None:
    first = "meta.kept" if "changes" in why else "hdr.ethernet.kind"
    pair, ingress = joined(TABLE.format(0, first, ROWS.format(0), "keep_0"), TABLE.format(1, *second))
    assert ("apply_" in ingress) == bool(why)
    for kind in (1, 2, 6, 3, 1):
        pair.send(frame(kind=kind), 1)
    pair.compare_state()
