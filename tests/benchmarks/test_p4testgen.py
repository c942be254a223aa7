"""Counts of p4testgen's tests: what passes, fails or is refused here is counted so, and told why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.p4.p4testgen import ASSUMED, assuming, chips_of, counts, exceptions, published, summed
from benchmarks.p4.ptf_scripts import scripts_of
from softswitch.stf import ScriptError
from softswitch.stf.script import Add, Expect, PacketLine, ScriptCommand, ScriptOperand, SetDefault
from tests.softswitch.script_program import have_compiler
from tests.softswitch.tofino.programs import source
from tests.system.command import ROOT

pytestmark = pytest.mark.skipif(not have_compiler, reason="no C compiler: each test runs in both back ends")
FRAME = "02" * 6 + "04" * 6 + "0800" + "00" * 46
SCRIPTS = {
    "swaps": (
        f"packet 1 {FRAME}\nexpect 2 {FRAME}$\n",
        f"packet 1 {FRAME}\nexpect 3 {FRAME}$\n",
        f"# p4testgen expects that nothing leaves\npacket 1 {FRAME}\n",
        f"add nothing hdr.x:1 go()\npacket 1 {FRAME}\n",
    ),
    "foreign": (f"packet 1 {FRAME}\n",),
}
"""Of each program, what the p4testgen below writes; of others it refuses to."""


@pytest.fixture
def command(tmp_path: Path) -> list[str]:
    """Give the command with a p4testgen that writes SCRIPTS."""
    fake = tmp_path / "p4testgen"
    fake.write_text(
        f"""#!{sys.executable}
import sys
from pathlib import Path
program, folder = Path(sys.argv[-1]).stem, Path(sys.argv[sys.argv.index("--out-dir") + 1])
assert sys.argv[sys.argv.index("--target") + 1] == ("tofino2" if "t2na" in sys.argv[-1] else "tofino")
scripts = {SCRIPTS!r}.get(program, ())
for number, script in enumerate(scripts):
    (folder / f"{{program}}_{{number}}.stf").write_text(script)
if not scripts:
    sys.exit("odd.p4(3): [--Werror=unsupported] error: Not for | us")
"""
    )
    fake.chmod(0o755)
    return [sys.executable, "-P", "-m", "benchmarks.p4.p4testgen", "--p4testgen", str(fake)]


def run(command: list[str], *more: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    return subprocess.run([*command, *more], capture_output=True, text=True, env=environment, check=False)


def test_each_outcome_is_counted_with_its_reason(tmp_path: Path, command: list[str]) -> None:
    programs = tmp_path / "programs"
    (programs / "t2na").mkdir(parents=True)
    (programs / "swaps.p4").write_text(source())
    (programs / "foreign.p4").write_text(source(ingress="intrinsic.nothing = 1;"))
    (programs / "t2na" / "odd.p4").write_text(source(architecture="t2na"))
    done = run(command, f"ours={programs}", "--output", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    page = (tmp_path / "out" / "p4testgen.md").read_text(encoding="utf-8")
    assert "| ours | tofino | STF | 2 | 2 | 5 | 0 | 1 | 2 | 2 |" in page
    assert "| ours | tofino2 | STF | 1 | 0 | 0 | 0 | 0 | 0 | 0 |" in page
    assert "| ours: swaps | tofino | STF | 1 of 4 | nothing more left at port … |" in page
    assert "| ours: swaps | tofino | STF | 1 of 4 | nobody expected, at port …, … |" in page
    assert "| ours: swaps | tofino | STF | 1 of 4 | no table 'nothing'; the program has none |" in page
    assert "| ours: foreign | tofino | STF | 1 of 1 | not compiled: " in page
    assert "| ours: odd | tofino2 | STF | none | p4testgen: Not for \\| us |" in page
    (programs / "swaps.p4").unlink()
    done = run(command, f"ours={programs}", "--output", str(tmp_path / "out"))
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "out" / "p4testgen.md").read_text(encoding="utf-8") == page, "its rows stay"


def test_the_page_has_the_rows_that_lie_beside_it() -> None:
    results = ROOT / "docs" / "results"
    rows = published(results / "p4testgen.json")
    assert rows
    page = (results / "p4testgen.md").read_text(encoding="utf-8")
    assert counts(rows) in page
    assert exceptions(rows) in page


def test_without_p4testgen_it_says_what_to_build() -> None:
    done = run(
        [sys.executable, "-P", "-m", "benchmarks.p4.p4testgen", "--p4testgen", "no-such-command"], "a=b"
    )
    assert done.returncode == 1
    assert done.stderr == (
        "benchmarks.p4.p4testgen: no-such-command is not on PATH: build p4c with -DENABLE_TEST_TOOLS=ON"
        " -DENABLE_TOFINO=ON\n"
    )


PTF = """
class AbstractTest(BfRuntimeTest):
    def setRegisterValue(self, reg_name, value, index):
        pass

class Test1(AbstractTest):
    '''
    a trace
    '''

    def setupCtrlPlane(self):
        self.setRegisterValue('Ingress.slot', 0x05, 3)
        self.setRegisterValue('Ingress.pair', [('Ingress.pair.tag', 0x01), ('Ingress.pair.flags', 0x02)], 0)
        # Table Ingress.t
        self.insertTableEntry(
            'Ingress.t',
            [
                gc.KeyTuple('hdr.a', 0x01),
                gc.KeyTuple('hdr.b', low=0x02, high=0x09),
                gc.KeyTuple('hdr.c', 0x04, 0x0C),
                gc.KeyTuple('hdr.d', 0x10, prefix_len=4),
            ],
            'Ingress.go',
            [
                gc.DataTuple('port', 0x07),
            ]
        )
        self.overrideDefaultEntry(
            'Ingress.u',
            'Ingress.stay',
            [
            ]
        )

    def sendPacket(self):
        ig_port = 6
        pkt = b'\\x01\\x02\\x03'
        send_packet(self, ig_port, pkt)

    def verifyPackets(self):
        eg_port = 5
        exp_pkt = b'\\x01\\x02\\xFF'
        exp_pkt = Mask(exp_pkt)
        exp_pkt.set_do_not_care(10, 3)
        verify_packet(self, exp_pkt, eg_port)

    def runTest(self):
        self.runTestImpl()

class Test2(AbstractTest):

    def setupCtrlPlane(self):
        self.setDirectRegisterValue('Ingress.t', 0x01)

class Test3(AbstractTest):

    def setupCtrlPlane(self):
        self.insertTableEntry(
            'Ingress.t',
"""


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(PTF.splitlines(), start=1) if text in line)


def test_tests_for_ptf_are_read_as_statements_up_to_a_torn_end() -> None:
    first, second = scripts_of(PTF)
    assert isinstance(first, list)
    matches = (
        ("hdr.a", ScriptOperand(1, 0, 0)),
        ("hdr.b", ScriptOperand(2, 0, 0, high=9)),
        ("hdr.c", ScriptOperand(4, 12, 128)),
        ("hdr.d", ScriptOperand(16, 0, 0, prefix=4)),
    )
    assert first == [
        ScriptCommand(
            line_of("self.setRegisterValue('Ingress.slot'"), "register_write", "Ingress.slot", (3, 5)
        ),
        ScriptCommand(line_of("'Ingress.pair'"), "register_write", "Ingress.pair#tag", (0, 1)),
        ScriptCommand(line_of("'Ingress.pair'"), "register_write", "Ingress.pair#flags", (0, 2)),
        Add(line_of("self.insertTableEntry("), "Ingress.t", None, matches, "Ingress.go", (("port", 7),)),
        SetDefault(line_of("overrideDefaultEntry"), "Ingress.u", "Ingress.stay", ()),
        PacketLine(line_of("send_packet"), 6, bytes((1, 2, 3))),
        Expect(line_of("verify_packet("), 5, "01**FF", exact=True),
    ]
    assert isinstance(second, ScriptError)
    assert second.message == "cells of a direct register"


@pytest.mark.parametrize("program", ASSUMED)
def test_assumptions_go_into_a_copy_of_our_programs(tmp_path: Path, program: str) -> None:
    path = ROOT / "p4src" / "tna" / f"{program}.p4"
    copied = assuming(path, tmp_path)
    text = copied.read_text(encoding="utf-8")
    assert text.count("testgen_assume(") == 2
    assert "bad_checksum" not in text
    assert (copied.parents[1] / "include" / "headers.p4").exists()
    assert chips_of(path.parent, path) == ("tofino", "tofino2")


def test_a_packet_gets_the_checksum_of_its_ipv4_header() -> None:
    header = bytes.fromhex(
        "450000730000400040110000c0a80001c0a800c7"
    )  # sums to 0xb861, by Wikipedia's example
    packet = summed(PacketLine(1, 2, bytes(14) + header + b"payload"))
    assert isinstance(packet, PacketLine)
    assert packet.data == bytes(14) + header[:10] + b"\xb8\x61" + header[12:] + b"payload"
    assert summed(PacketLine(1, 2, bytes(33))) == PacketLine(1, 2, bytes(33))
