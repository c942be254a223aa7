"""The engine built with address and undefined-behaviour sanitizers, driven by random bytes: silent.

Table writes during traffic: each packet sees the old or the new entry; the thread sanitizer is silent.

What it cannot judge are the fences of shared memory ports, which are not used here.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from softswitch import compile_source
from softswitch.engine.build import RUNTIME, engine_sources
from softswitch.engine.emit_c import emit_c
from tests.programs import program_of
from tests.softswitch.script_program import SCRIPT, have_compiler

HERE = Path(__file__).parent
CC = os.environ.get("CC", "cc")
SANITIZE = ["-g1", "-fno-omit-frame-pointer", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def _can_sanitize(directory: Path) -> bool:
    source = directory / "probe.c"
    source.write_text("int main(void) { return 0; }")
    probe = directory / "probe"
    built = subprocess.run([CC, *SANITIZE, "-o", str(probe), str(source)], capture_output=True)
    return built.returncode == 0 and subprocess.run([str(probe)], capture_output=True).returncode == 0


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("sanitized")
    if not have_compiler:
        pytest.skip("no C compiler")
    if not _can_sanitize(directory):
        pytest.skip(f"{CC} has no working address sanitizer here")
    target = directory / "engine_fuzz"
    (directory / "program.c").write_text(emit_c(program_of(SCRIPT)))
    sources = [*engine_sources(), directory / "program.c", HERE / "engine_fuzz.c"]
    warnings = ["-Wall", "-Wextra", "-Werror"]
    command = [
        CC,
        "-std=gnu11",
        "-O1",
        *warnings,
        *SANITIZE,
        "-pthread",
        "-D_GNU_SOURCE",
        f"-I{RUNTIME}",
        "-o",
        str(target),
    ]
    subprocess.run([*command, *map(str, sources)], check=True)
    return target


@pytest.mark.parametrize("seed", range(4))
def test_random_bytes_leave_the_sanitizers_silent(driver: Path, seed: int) -> None:
    done = subprocess.run([str(driver), str(seed), "20"], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


REPLIES = 3000
TSAN = ["-fsanitize=thread", "-fno-omit-frame-pointer", "-Wno-tsan"]

PROGRAM = """
#include <core.p4>
#include <v1model.p4>
header keyed_t {
    bit<32> key; bit<64> exact1; bit<64> exact2; bit<64> lpm1; bit<64> lpm2;
    bit<64> ternary1; bit<64> ternary2; bit<32> cell;
}
struct headers_t { keyed_t keyed; }
struct metadata_t { }
parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start { packet.extract(hdr.keyed); transition accept; }
}
control Verify(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Compute(inout headers_t hdr, inout metadata_t meta) { apply { } }
control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    register<bit<64>>(1024) met;
    bit<64> times;
    action set_exact(bit<64> a, bit<64> b) { hdr.keyed.exact1 = a; hdr.keyed.exact2 = b; }
    action set_lpm(bit<64> a, bit<64> b) { hdr.keyed.lpm1 = a; hdr.keyed.lpm2 = b; }
    action set_ternary(bit<64> a, bit<64> b) { hdr.keyed.ternary1 = a; hdr.keyed.ternary2 = b; }
    table exact_table { key = { hdr.keyed.key: exact; } actions = { set_exact; NoAction; } size = 9999; }
    table lpm_table { key = { hdr.keyed.key: lpm; } actions = { set_lpm; NoAction; } size = 9999; }
    table ternary_table { key = { hdr.keyed.key: ternary; } actions = { set_ternary; NoAction; } size = 99; }
    apply {
        met.read(times, hdr.keyed.cell);
        met.write(hdr.keyed.cell, times + 1);
        exact_table.apply(); lpm_table.apply(); ternary_table.apply();
        sm.egress_spec = sm.ingress_port;
    }
}
control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) { apply { } }
control D(packet_out packet, in headers_t hdr) { apply { packet.emit(hdr.keyed); } }
V1Switch(P(), Verify(), I(), E(), Compute(), D()) main;
"""


def build(directory: Path, flags: list[str]) -> Path:
    program = compile_source(PROGRAM, name="threads.p4")
    assert list(program.tables) == [
        "I.exact_table",
        "I.lpm_table",
        "I.ternary_table",
    ]  # as the driver numbers them
    source, target = directory / "program.c", directory / "engine_threads"
    source.write_text(emit_c(program))
    sources = [*engine_sources(), source, Path(__file__).with_name("engine_threads.c")]
    options = ["-std=gnu11", "-O1", "-g1", *flags, "-pthread", "-D_GNU_SOURCE", f"-I{RUNTIME}"]
    subprocess.run([CC, *options, "-o", str(target), *map(str, sources)], check=True)
    return target


def thread_sanitizer_works(directory: Path) -> bool:
    source, probe = directory / "probe.c", directory / "probe"
    source.write_text("int main(void) { return 0; }")
    built = subprocess.run([CC, *TSAN, "-o", str(probe), str(source)], capture_output=True)
    return built.returncode == 0 and subprocess.run([str(probe)], capture_output=True).returncode == 0


def test_each_packet_sees_the_old_or_the_new_entry(tmp_path: Path) -> None:
    """With the thread sanitizer where there is one."""
    if not have_compiler:
        pytest.skip("no C compiler")
    driver = build(tmp_path, TSAN if thread_sanitizer_works(tmp_path) else [])
    done = subprocess.run([str(driver), str(REPLIES)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    hits, written = map(int, done.stdout.split())
    assert 0 < hits < 3 * REPLIES, "packets met the entries in one state only"
    assert written > 0
