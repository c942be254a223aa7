"""What supervisors and people read of a service: sd_notify, lines of its log, the examples for systemd."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ina.cli.service import serving
from tests.ina.run.bed import TIMEOUT_S, cluster, stand
from tests.ina.run.served import LEFT, Served

UNIT = Path(__file__).parents[3] / "examples" / "controller" / "ina-controller.service"


@pytest.fixture(params=["path", "abstract"])
def supervisor(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[socket.socket]:
    """The socket of a supervisor, as a file or a name without one."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as made:
        name = f"{tmp_path}/notify"
        made.bind("\0" + name if request.param == "abstract" else name)
        made.settimeout(TIMEOUT_S)
        monkeypatch.setenv("NOTIFY_SOCKET", "@" + name if request.param == "abstract" else name)
        yield made


def test_a_supervisor_hears_that_it_is_ready_lives_and_ends(
    supervisor: socket.socket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "20000")

    async def life() -> list[str]:
        daemon, _, _ = stand(tmp_path, cluster())
        task = asyncio.create_task(serving.notify(daemon, "http://here"))
        await asyncio.sleep(0)
        supervisor.setblocking(False)
        with pytest.raises(BlockingIOError):
            supervisor.recv(4096)  # not before it serves
        supervisor.settimeout(TIMEOUT_S)
        running = asyncio.create_task(daemon.run())
        heard = [await asyncio.to_thread(supervisor.recv, 4096) for _ in range(3)]
        task.cancel()
        running.cancel()
        await asyncio.gather(task, running, return_exceptions=True)
        last = b""
        while not last.startswith(b"STOPPING"):
            last = await asyncio.to_thread(supervisor.recv, 4096)
        return [each.decode() for each in (*heard, last)]

    assert asyncio.run(life()) == [
        "READY=1\nSTATUS=serving at http://here",
        "WATCHDOG=1",
        "WATCHDOG=1",
        "STOPPING=1\nSTATUS=ending; jobs keep running",
    ]


@pytest.mark.parametrize("where", ["", "relative", "/nobody/is/there"])
def test_a_supervisor_that_is_not_there_is_no_error(where: str) -> None:
    serving.tell("READY=1", environment={"NOTIFY_SOCKET": where})


@pytest.mark.parametrize(
    ("environment", "every_s"),
    [
        ({}, None),
        ({"WATCHDOG_USEC": "3000000"}, 1.5),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, None),
        ({"WATCHDOG_USEC": "soon"}, None),
        ({"WATCHDOG_USEC": "0"}, None),
    ],
)
def test_the_watchdog_is_fed_twice_as_often_as_it_asks(
    environment: dict[str, str], every_s: float | None
) -> None:
    assert serving.watchdog_s(environment) == every_s


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not on PATH")
def test_systemd_accepts_the_example(tmp_path: Path) -> None:
    unit = tmp_path / UNIT.name
    unit.write_text(UNIT.read_text().replace("/opt/ina/bin/ina", sys.executable))
    found = subprocess.run(
        ["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False
    )
    assert (found.returncode, found.stderr) == (0, "")


# --------------------------------------------------------------------------- the log


@pytest.fixture
def stream(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A place for a log, which leaves the logging of other tests as it was."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(logging.getLogger("ina"), "level", logging.NOTSET)
    return io.StringIO()


async def test_each_decision_is_a_line_with_its_number_and_its_jobs(
    stream: io.StringIO, served: Served
) -> None:
    serving.write_to(stream, "json")
    task = asyncio.create_task(serving.log_decisions(served.daemon))
    await served.submit("vision", 10, (LEFT,), "completed")
    await served.until(lambda: "ended" in stream.getvalue())
    task.cancel()
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(each["decision"], each["event"], each["jobs"]) for each in lines] == [
        (number, entry.event, list(entry.jobs)) for number, entry in served.daemon.reports.decisions()
    ]
    assert {each["level"] for each in lines} == {"info"}


@pytest.mark.parametrize("logger", ["ina.run.effects", "controller.switches"])
@pytest.mark.parametrize("kind", ["text", "json"])
def test_a_trouble_names_its_switch_and_its_run(stream: io.StringIO, kind: str, logger: str) -> None:
    serving.write_to(stream, "json" if kind == "json" else "text")
    logging.getLogger(logger).warning("run %d: switch %r does not answer", 7, "s2")
    (line,) = stream.getvalue().splitlines()
    if kind == "json":
        found = json.loads(line)
        assert (found["run"], found["switch"], found["level"]) == (7, "s2", "warning")
    else:
        assert "[switch=s2 run=7] run 7: switch 's2' does not answer" in line


def test_no_text_begins_a_line_of_its_own_or_gives_commands_to_a_terminal(stream: io.StringIO) -> None:
    """The holder of a job may say anything of why it failed."""
    serving.write_to(stream)
    logging.getLogger("ina.run").warning("%s", "a\n2026-01-01 info all is well \x1b[2J\x85\u2028\u202e")
    assert stream.getvalue().removesuffix("\n").isprintable()
