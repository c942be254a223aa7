"""Measures a controller with ten switches and two hundred jobs, over HTTP, as its clients do."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import urlsplit

import typer

from benchmarks.fill import show
from benchmarks.speed.controller_process import SPINES, Order, cluster
from ina.cli.command import Json, say
from ina.errors import ProcessFailed
from ina.run.client import Client
from ina.run.switches.switch_process import EmbeddedSwitch

SENDERS = 16
Figure = dict[str, Any]


def storm(url: str, jobs: Sequence[Mapping[str, Any]], senders: int = SENDERS) -> Figure:
    """Submit jobs, each in a request of its own, over several connections at once; then look them up.

    Returns the seconds until the last answer, the numbers of accepted jobs, of refused ones and of lost ones,
    and the refusals by status code.
    """

    def send(part: Sequence[Mapping[str, Any]]) -> Mapping[str, int]:
        found, connection = {}, http.client.HTTPConnection(urlsplit(url).netloc, timeout=60)
        for job in part:
            try:
                body = json.dumps({"jobs": [job]})
                connection.request("POST", "/v1/jobs", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                if json.loads(answer.read()).get("detail") or answer.status < 400:
                    found[job["name"]] = answer.status
            except OSError:
                connection.close()
        connection.close()
        return found

    begin = time.perf_counter()
    with ThreadPoolExecutor(senders) as pool:
        parts = list(pool.map(send, (jobs[number::senders] for number in range(senders))))
    took_s = time.perf_counter() - begin
    answers = {name: status for part in parts for name, status in part.items()}
    with Client(url) as client:
        known = {each["name"] for each in client.jobs()}
    accepted = sum(status == 201 and name in known for name, status in answers.items())
    reasons = Counter(str(status) for status in answers.values() if status >= 400)
    lost = len(jobs) - accepted - reasons.total()
    return {"took_s": took_s, "accepted": accepted, "refused": dict(reasons), "lost": lost}


LEAVES, HOSTS = 8, 8
PATIENCE_S = 120.0
LOOK_S = 0.01
PAUSE_S = 0.5
"""Pause between two admissions, until the effects of the first one are over."""


class _Daemon:
    """The measured controller, as a process."""

    def __init__(self, folder: Path, order: Order) -> None:
        path = folder / "order.json"
        path.write_text(json.dumps(asdict(order)))
        begin = time.perf_counter()
        self._log = folder / "controller.log"
        with self._log.open("a") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.speed.controller_process", str(path)],
                cwd=Path(__file__).parents[2],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        self.whole_s = time.perf_counter() - begin
        if not line:
            status, message = self.process.wait(), self._log.read_text().strip().rpartition("\n")[2]
            raise ProcessFailed(f"the controller that is measured ended with status {status}: {message}")
        found = json.loads(line)
        self.url: str = found["url"]
        self.ready_s: float = found["ready_s"]

    def kill(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def share(self, seconds: float) -> float:
        """Return its share of a processor over some seconds."""
        before, begin = self.processor_s(), time.perf_counter()
        time.sleep(seconds)
        return (self.processor_s() - before) / (time.perf_counter() - begin)

    def processor_s(self) -> float:
        """Return its processor time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self, name: str = "VmRSS") -> int:
        """Return its memory in bytes; with `name` "VmHWM" the peak."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(f"{name}:"):
                return int(line.split()[1]) * 1024
        raise ProcessFailed("this system does not report the memory of processes")


def job(number: int, name: str) -> dict[str, Any]:
    """Return a job of two workers in two racks, which never ends by itself."""
    servers = LEAVES * HOSTS
    first = number % servers
    second = (first + HOSTS * (1 + number // servers)) % servers
    return {
        "name": name,
        "workers": 2,
        "command": "true",
        "iterations": 1_000_000,
        "compute_s": 0.1,
        "model_bytes": 1 << 20,
        "servers": [f"h{first + 1}", f"h{second + 1}"],
    }


def measure(
    *,
    resident: int = 200,
    submissions: int = 10_000,
    admissions: int = 20,
    seconds: float = 15.0,
    report: Callable[[str], None] = lambda text: None,
) -> dict[str, Figure]:
    """Measure all, in one run.

    Args:
        resident: Jobs that run.
        submissions: Submissions at once.
        admissions: Jobs that are admitted beside the resident ones, one after the other.
        seconds: Time of each measurement of the processor share.
        report: Called with the name of the next measurement.

    Raises ProcessFailed, and ClientError if the controller refuses a valid request.
    """
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="ina-bench-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        names = list(cluster(LEAVES, HOSTS).switch)
        report(f"starting {len(names)} switches")
        switches = {name: stack.enter_context(_switch(folder, name)) for name in names}
        order = Order(str(folder / "state"), LEAVES, HOSTS, {n: each.address for n, each in switches.items()})
        daemon = _Daemon(folder, order)
        stack.callback(lambda: daemon.kill())
        report("idle, without jobs")
        idle = daemon.share(seconds)
        report(f"admitting {resident} jobs")
        with Client(daemon.url) as client:
            client.submit([job(number, f"resident-{number}") for number in range(resident)])
            _until(lambda: client.cluster()["jobs"].get("running", 0) == resident)
            report(f"admitting {admissions} more, one after the other")
            took = [_admission(client, resident + number) for number in range(admissions)]
        report("killing the controller")
        daemon.kill()
        restarted = daemon = _Daemon(folder, order)
        report("idle, with all jobs")
        _settle(daemon)
        idle_resident = daemon.share(seconds)
        report("emptying all switches")
        daemon.kill()
        for name in names:
            switches[name].stop()
        for name in names:
            switches[name] = stack.enter_context(_switch(folder, name))
            assert switches[name].address
        emptied = daemon = _Daemon(folder, order)
        _settle(daemon)
        report(f"{submissions} submissions")
        before = daemon.memory()
        begin_s = daemon.processor_s()
        found = storm(daemon.url, [job(number, f"storm-{number}") for number in range(submissions)])
        storm_processor_s = daemon.processor_s() - begin_s
        after = daemon.memory("VmHWM")
        daemon.kill()  # before its switches
        storm_target_s = 30.0 * submissions / 10_000
        return {
            "admission of a job, median": _figure(statistics.median(took), 0.1),
            "admission, the longest": _figure(max(took), 0.1),
            "restart: all switches compared": _figure(restarted.ready_s, 2.0),
            "restart, with the start of the process": _figure(restarted.whole_s, 2.0),
            "restart, all switches empty": _figure(emptied.ready_s, 2.0),
            "submissions at once": {**_figure(found["took_s"], storm_target_s), **found},
            "submissions: processor time": _figure(storm_processor_s, storm_target_s),
            "submissions: memory, bytes": {"measured": after - before, "memory_before": before},
            "idle, no jobs: share of a processor": _figure(idle, 0.01),
            "idle, all jobs": _figure(idle_resident, 0.01),
        }


def controller(
    *,
    jobs: Annotated[
        int, typer.Option(min=1, max=448, help="Run this many jobs meanwhile, of two workers each.")
    ] = 200,
    submissions: Annotated[
        int, typer.Option(min=1, help="Submit this many jobs at once, each in a request of its own.")
    ] = 10_000,
    seconds: Annotated[
        float, typer.Option("--seconds", min=1, help="Measure each processor share this long.")
    ] = 15.0,
    json: Json = False,
) -> None:
    """Measure a controller of ten switches (processes, over P4Runtime), asked over HTTP.

    Jobs have no workers: only the controller is measured. Times are in seconds, each beside its target and
    the ratio of both: below 1 the target is met. Other load on the machine counts, also from switches and
    clients, so the machine's load is printed, too.
    """
    found = measure(
        resident=jobs,
        submissions=submissions,
        seconds=seconds,
        report=(lambda text: None) if json else lambda text: say(f"ina: {text}"),
    )
    show("controller", {"jobs": jobs, "load": os.getloadavg()[0]}, found, as_json=json)


def _figure(measured: float, target: float) -> Figure:
    return {"measured": measured, "target": target, "ratio": measured / target}


def _switch(folder: Path, name: str) -> EmbeddedSwitch:
    ports = SPINES + HOSTS if name.startswith("leaf") else LEAVES
    options = [word for port in range(ports + 1) for word in ("--port", f"{port}=memory")]
    return EmbeddedSwitch(options, p4runtime=f"unix:{folder / name}", title=f"switch {name}")


def _admission(client: Client, number: int) -> float:
    """Return the time until a job holds its slots; it is cancelled again."""
    name = f"extra-{secrets.token_hex(4)}"
    begin = time.perf_counter()
    client.submit([job(number, name)])
    _until(lambda: client.job(name)["state"] == "running")
    took_s = time.perf_counter() - begin
    client.cancel(name)
    _until(lambda: client.job(name)["over"])
    time.sleep(PAUSE_S)
    return took_s


def _until(true: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not true():
        if time.monotonic() > until:
            raise ProcessFailed(f"the controller has not reached that state within {PATIENCE_S:g} s")
        time.sleep(LOOK_S)


def _settle(daemon: _Daemon) -> None:
    """Wait until the effects of a start are over."""
    with Client(daemon.url) as client:
        _until(lambda: client.cluster()["jobs"].get("running", 0) > 0)
    time.sleep(2.0)
