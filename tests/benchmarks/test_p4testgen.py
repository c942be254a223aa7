"""Counts of p4testgen's tests: what passes, fails or is refused here is counted so, and told why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.p4.p4testgen import counts, exceptions, published
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
    assert "| ours | tofino | 2 | 2 | 5 | 1 | 2 | 2 |" in page
    assert "| ours | tofino2 | 1 | 0 | 0 | 0 | 0 | 0 |" in page
    assert "| ours: swaps | tofino | 1 of 4 | a packet is missing at port … |" in page
    assert "| ours: swaps | tofino | 1 of 4 | unexpected packet at port …, … |" in page
    assert "| ours: swaps | tofino | 1 of 4 | no table 'nothing'; the program has none |" in page
    assert "| ours: foreign | tofino | 1 of 1 | not compiled: " in page
    assert "| ours: odd | tofino2 | none | p4testgen: Not for \\| us |" in page
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
