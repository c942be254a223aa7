"""What commands and workers write comes out as it is, by line, in any encoding, on terminals and files."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostlib.launch.launcher import MAX_LINE, _passed_on
from ina.cli.command import say
from ina.cli.output import table
from ina.cli.screen import Screen, instead
from tests.system.command import ROOT, here

# --------------------------------------------------------------------- what workers write comes out a


LANES = ("--lanes", "32")
COLUMNS = 60

ODD = (
    b"shape 3:100:5 a:x:b [bold]x[/bold] :smile:\n"
    b"\xff\xfe\x00 is not UTF-8\n"
    b"\x1b[31mred\x1b[0m\ttab\n"
    b"\n"
    b"Windows\r\n" + "größer, 重み\n".encode()
)
LONG = b"x" * (5 * MAX_LINE) + b"\n"
BAR = b"".join(b"\r%3d%% of an epoch" % i for i in range(0, 101, 10)) + b"\n"

# A worker that writes a file to its standard output, as fast as that goes.
WRITE = "import shutil, sys; shutil.copyfileobj(open(sys.argv[1], 'rb'), sys.stdout.buffer)"


def output_of(path: Path, data: bytes, *options: str, to: str = "stdout") -> bytes:
    """Return what a run's workers wrote, each of them `data`, as it came out; no summary."""
    path.write_bytes(data)
    command = [sys.executable, "-c", WRITE, str(path)]
    if to == "stderr":
        command = ["sh", "-c", 'exec "$@" >&2', "sh", *command]
    done = subprocess.run(
        [sys.executable, "-m", "ina", "run", *LANES, *options, "--", *command],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    if to == "stderr":
        return done.stderr
    return done.stdout[: done.stdout.rindex(b"summary\n")]


@pytest.mark.parametrize("to", ["stdout", "stderr"])
def test_the_bytes_of_a_worker_come_out_as_they_are(tmp_path: Path, to: str) -> None:
    data = ODD + LONG + BAR + b"no newline at the end"
    assert output_of(tmp_path / "data", data, to=to) == data + b"\n"


def test_lines_of_several_workers_come_out_whole_each_with_its_rank(tmp_path: Path) -> None:
    lines = [b"%d %s\n" % (i, b"-" * (i % 300)) for i in range(20_000)]
    output = output_of(tmp_path / "data", b"".join(lines) + b"the end", "-np", "3")
    for rank in range(3):
        prefix = b"[%d] " % rank
        said = [line for line in output.splitlines(keepends=True) if line.startswith(prefix)]
        assert said == [prefix + line for line in [*lines, b"the end\n"]]
    assert output.count(b"\n") == 3 * (len(lines) + 1)


def test_unfinished_lines_of_several_workers_do_not_run_into_each_other(tmp_path: Path) -> None:
    output = output_of(tmp_path / "data", LONG[:-1], "-np", "2")
    written = {b"[0] ": 0, b"[1] ": 0}
    for line in output.splitlines():
        assert set(line[4:]) == {ord("x")}
        written[line[:4]] += len(line) - 4
    assert set(written.values()) == {len(LONG) - 1}


class Terminal:
    """What is to be seen on a terminal, of which this knows as little as the line of progress needs."""

    def __init__(self) -> None:
        self.lines = [""]
        self._column = 0

    def feed(self, text: str) -> None:
        for part in re.findall(r"\x1b\[[0-9;?]*[A-Za-z]|\r|\n|[^\x1b\r\n]+", text):
            if part == "\n":
                self.lines.append("")
            elif part == "\r":
                self._column = 0
            elif part == "\x1b[2K":
                self.lines[-1] = ""
            elif not part.startswith("\x1b"):
                line = self.lines[-1].ljust(self._column)
                self.lines[-1] = line[: self._column] + part + line[self._column + len(part) :]
                self._column += len(part)


def on_a_terminal(*arguments: str, **variables: str) -> str:
    """Return all that the ina command, with these environment variables, writes to a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 25, COLUMNS, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "ina", *arguments],
        cwd=ROOT,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**os.environ, "TERM": "xterm", **variables},
    )
    os.close(theirs)
    written = b""
    while True:
        try:
            data = os.read(ours, 65536)
        except OSError:  # all that held the other end have closed it
            break
        written += data
    os.close(ours)
    assert process.wait() == 0
    return written.decode()


def test_a_terminal_shows_lines_whole_above_the_line_of_progress() -> None:
    script = "for i in 1 2 3 4 5 6 7 8; do echo line $i; echo complaint $i >&2; sleep 0.2; done; printf end"
    written = on_a_terminal("run", *LANES, "-np", "2", "--", "sh", "-c", script)
    for word in ("loading …", "compiling the switch program", "starting 2 workers"):
        assert f"\r\x1b[2K{word}" in written
    assert written.index("loading") < written.index("compiling") < written.index("line 1")
    terminal = Terminal()
    terminal.feed(written)
    said = terminal.lines[: terminal.lines.index("summary")]
    numbers = range(1, 9)
    for rank in range(2):
        assert [line for line in said if line.startswith(f"[{rank}] line")] == [
            f"[{rank}] line {i}" for i in numbers
        ]
        assert [line for line in said if line.startswith(f"[{rank}] complaint")] == [
            f"[{rank}] complaint {i}" for i in numbers
        ]
        assert f"[{rank}] end" in said
    assert len(said) == 2 * (8 + 8 + 1)


@pytest.mark.parametrize("arguments", [("schedule", "policies"), ("run", "--help")])
def test_no_color_leaves_out_bold_too(arguments: tuple[str, ...]) -> None:
    style = re.compile(r"\x1b\[[0-9;]*m")
    assert style.search(on_a_terminal(*arguments, NO_COLOR=""))
    assert not style.search(on_a_terminal(*arguments, NO_COLOR="1"))


def test_a_progress_bar_of_a_worker_keeps_its_line_on_a_terminal() -> None:
    script = "echo begun; for i in 1 2 3 4 5; do printf '\\r%s0 percent' $i; sleep 0.3; done; echo"
    written = on_a_terminal("run", *LANES, "--", "sh", "-c", script)
    terminal = Terminal()
    terminal.feed(written)
    assert terminal.lines[: terminal.lines.index("summary")] == ["begun", "50 percent"]
    assert "10 percent\r20 percent\r30 percent\r40 percent\r50 percent\r\n" in written, (
        "by nothing interrupted"
    )


@given(st.lists(st.text("ab\r\n").map(str.encode), max_size=20))
def test_data_that_is_held_back_is_the_beginning_of_a_line_or_a_carriage_return(chunks: list[bytes]) -> None:
    held = b""
    passed = b""
    for chunk in chunks:
        data = held + chunk
        end = _passed_on(data)
        passed, held = passed + data[:end], data[end:]
        assert held.startswith(b"\r") or not passed.endswith(b"\r"), "a newline may follow"
        assert b"\n" not in held
        assert b"\r" not in held[1:]
    assert passed + held == b"".join(chunks)


@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.text("ab\n", min_size=1).map(str.encode)), min_size=1, max_size=20
    )
)
def test_what_several_write_can_be_told_apart_by_the_prefix(writes: list[tuple[int, bytes]]) -> None:
    ours, theirs = os.pipe()
    with os.fdopen(theirs, "w") as stream, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        screen = Screen()
        for source, data in writes:
            screen.forward(source, b"%d>" % source, data, to_stderr=False)
        screen.finish()
    with os.fdopen(ours, "rb") as stream:
        lines = stream.read().splitlines()
    for source in range(3):
        written = b"".join(data for of, data in writes if of == source)
        prefix = b"%d>" % source
        told = b"".join(line.removeprefix(prefix) for line in lines if line.startswith(prefix))
        assert told == written.replace(b"\n", b"")
    assert all(line[:2] in (b"0>", b"1>", b"2>") for line in lines)


def test_names_from_files_and_switches_move_no_cursor(capsys: pytest.CaptureFixture[str]) -> None:
    say("ina: job \x1b[31mred\u202e\a is gone\nµs")
    table("jobs of \x1b]0;title\a", ["job"], [("a\x9b2J",)])
    written = capsys.readouterr()
    assert written.err == "ina: job \\x1b[31mred\\u202e\\x07 is gone\nµs\n"
    assert "jobs of \\x1b]0;title\\x07" in written.out
    assert "a\\x9b2J" in written.out


def test_a_width_of_zero_means_that_it_is_not_known() -> None:
    """Some schedulers of builds say so; rich printed nothing but tables then."""
    shown = {}
    for columns in ("0", "80"):
        environment = {**os.environ, "COLUMNS": columns, "NO_COLOR": "1", "TERM": "dumb"}
        shown[columns] = subprocess.run(
            [sys.executable, "-m", "ina", "compile", "tests/softswitch/features/slices.p4"],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            check=True,
            text=True,
        ).stdout
    assert shown["0"] == shown["80"]
    assert shown["0"].startswith("slices.p4\n")


# --------------------------------------------------------------------- output where the encoding lack


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("topo", "show", "leaf-spine"), "2 us"),
        (
            (
                *("schedule", "plan", "--jobs", "examples/schedule/jobs.toml"),
                *("--cluster", "examples/schedule/cluster.toml"),
            ),
            "0 ",
        ),
        (("sim", "examples/three_jobs.toml", "--explain", "--iterations", "2"), "us"),
        (
            (
                *("alloc", "--explain", "launch", "--jobs", "examples/allocation/jobs.toml"),
                *("--cluster", "examples/allocation/rack.toml"),
            ),
            "20 us",
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_what_ascii_lacks_is_written_otherwise(arguments: tuple[str, ...], said: str) -> None:
    done = here(*arguments, status=0, encoding="ascii")
    assert said in done.stdout
    assert "Traceback" not in done.stderr


FILES = ("--jobs", "examples/cluster/two_jobs.toml", "--cluster", "examples/cluster/two.toml")


def test_what_commands_of_files_and_runs_print_is_ascii_where_that_is_asked_for(tmp_path: Path) -> None:
    """The same at once for commands that print other tables: one place writes for all of them."""
    seen = str(tmp_path / "seen")
    sums = ("--", sys.executable, "tests/system/workers/exact.py", "1", "2000")
    for arguments in (
        ("alloc", *FILES),
        ("place", *FILES),
        ("route", *FILES),
        ("cluster", "simulate", *FILES),
        ("schedule", "policies"),
        ("sim", "examples/three_jobs.toml", "--iterations", "1", "--sweep", "slots=16,64"),
        ("soak", "--schedules", "2", "--processes", "1"),
        ("compile", "p4src/shared.p4", "-D", "LANES=32", "--explain"),
        ("scenario", "list"),
        ("run", "-np", "2", "--lanes", "32", "--pcap", seen, *sums),
        ("trace", seen),
        ("trace", seen, "--psn", "0"),
        ("trace", seen, "--slots"),
        ("run", "--help"),
    ):
        done = here(*arguments, status=0, encoding="ascii")
        assert done.stdout.isascii(), arguments
        assert len(done.stdout) > 40, arguments
        assert done.stderr.isascii(), arguments


def test_an_encoding_that_has_the_character_gets_it() -> None:
    assert "2 µs" in here("topo", "show", "leaf-spine", status=0, encoding="latin-1").stdout


def test_names_of_users_do_not_end_a_command() -> None:
    assert "\\u6570.toml" in here("topo", "show", "数.toml", status=2, encoding="ascii").stderr


@pytest.mark.parametrize(
    ("text", "shown"),
    [("µs", "us"), ("a → b", "a -> b"), ("┌─┐", "+-+"), ("é", "e"), ("数", "\\u6570"), ("10⁻³", "10-3")],
)
def test_signs_have_a_stand_in(text: str, shown: str) -> None:
    assert instead(text) == shown
