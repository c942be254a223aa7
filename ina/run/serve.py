"""Assembles a service from its state, site, policies and engine; writes its log and tells its supervisor.

The log has a line for each decision and each warning, as text or JSON. A line names the jobs, the switch and
the run that it is about, if there are any. A line about a decision also has the decision's number in the log
of decisions (``GET /v1/events``). Lines never contain tokens. The supervisor is one such as systemd.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import re
import socket
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TextIO

from controller.errors import BadSpec, OtherOwner
from controller.switches.leases import Owner, this_process
from ina.errors import Conflict, ServiceError
from ina.run.clock import Clock
from ina.run.daemon import Daemon
from ina.run.launch.engines import EngineChoice
from ina.run.ledger import Ledger
from ina.run.policies import Policies, read_policies
from ina.run.records import Retention
from ina.run.recovery import check_processes
from ina.run.site import Site, read_cluster
from ina.run.store import Store
from ina.run.threads import Threads
from ina.run.views import ReloadView


@asynccontextmanager
async def opened(
    state: Path,
    site: Site,
    policies: Policies,
    *,
    engine: EngineChoice | None = None,
    retention: Retention | None = None,
    take_over: bool = False,
) -> AsyncIterator[Daemon]:
    """Make and yield the daemon that continues a state; the caller starts its `run`.

    Args:
        state: The folder of the state, which the caller has locked.
        site: The switches and servers.
        policies: The policies.
        engine: The engine that starts workers; None: this machine itself.
        retention: How many ended jobs are kept, and how long; None: the default of `Retention`.
        take_over: Whether to take switches that other controllers own. Those controllers then lose the
            switches, and the jobs that they have on them.

    Raises:
        StoreError: the state cannot be used.
        ServiceError: the state belongs to another site or engine, the engine does not answer or cannot start
            workers at this site, another controller owns a switch, or the switches run a program whose jobs
            do not share slots.
        BadSpec: the cluster cannot replace the cluster of the state.
    """
    engine = engine or EngineChoice()
    site.check(engine)
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(Store(state))
        for fact, of, wanted in (("testbed", "of", site.name), ("engine", "with executor", engine.engine)):
            if (known := store.fact(fact, wanted)) != wanted:
                raise ServiceError(
                    f"{state} is the state of a controller {of} {known!r}, not {of} {wanted!r}: want another"
                    " --state"
                )
        service = store.identity
        check_processes(state, service)
        network = stack.enter_context(site.network(state / "program"))
        name = f"the controller with process {os.getpid()} on {socket.gethostname()}, --state {state}"
        try:
            network.own(site.cluster, Owner(service, name, this_process()), take_over=take_over)
        except OtherOwner as error:
            raise ServiceError(
                f"{error}: end that controller; if it is gone, or its state is lost, --take-over takes the"
                " switches, and removes its jobs from them"
            ) from error
        yield Daemon(
            Ledger(store, site.cluster, policies, Clock.of(store), retention=retention),
            testbed=site.testbed,
            switches=network,
            executor=stack.enter_context(engine.executor(state / "runs", service, site.machines)),
            fallbacks=site.fallbacks(service, network.offers.lanes),
            blocking=Threads(),
        )


_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Files:
    """The files of a service.

    Attributes:
        cluster: The cluster file; None: the service's site is a testbed.
        policies: The policies file; None: command-line options set the policies.
        defaults: The policies and settings for keys that the policies file lacks.
    """

    cluster: Path | None
    policies: Path | None
    defaults: Policies

    async def reload(self, service: Daemon) -> ReloadView:
        """Replace a service's cluster and policies by the current contents of the files.

        Both files are read before anything is changed. The cluster is replaced first. If the policies are
        refused then, the new cluster stays.

        Raises Conflict, with the file's line and key, if a file is wrong or cannot replace the current
        cluster or policies, and StoreError.
        """
        if self.cluster is None and self.policies is None:
            raise Conflict(
                "the controller was started with neither --cluster nor --policies: there is no file to read"
            )
        try:
            cluster = None if self.cluster is None else await asyncio.to_thread(read_cluster, self.cluster)
            policies = (
                self.defaults
                if self.policies is None
                else await asyncio.to_thread(read_policies, self.policies, self.defaults)
            )
        except BadSpec as error:
            raise Conflict(f"nothing has changed: {error}") from error
        notes = () if cluster is None else await service.change_cluster(cluster)
        if self.policies is not None:
            await service.reload(policies)
        return {"cluster": list(notes), "policies": policies.names}


def reloading(service: Daemon, files: Files) -> Callable[[], None]:
    """Return a signal handler that reloads the service's files, and logs an error in them as a warning."""
    under_way: set[asyncio.Task[None]] = set()

    async def reload() -> None:
        try:
            found = await files.reload(service)
        except ServiceError as error:
            _log.warning("cannot reload the files: %s", error)
        else:
            _log.info(
                "policies: %s; cluster: %s", found["policies"], "; ".join(found["cluster"]) or "as before"
            )

    def handle() -> None:
        task = asyncio.get_running_loop().create_task(reload())
        under_way.add(task)
        task.add_done_callback(under_way.discard)

    return handle


# --------------------------------------------------------------------------- log and supervisor


KINDS = ("text", "json")
READY_S = 0.05
FIELDS = ("decision", "event", "jobs", "switch", "run")
"""Names of the fields of a line besides its time, level and text, in this order."""

_decisions = logging.getLogger("ina.run.decisions")
_SWITCH = re.compile(r"\bswitch '([^']+)'")
_RUN = re.compile(r"^run (\d+)\b")


class _Format(logging.Formatter):
    """Formats log records as lines of JSON, or as lines of text with the fields in brackets."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self._kind = kind

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a log record."""
        text = record.getMessage()
        found = {name: getattr(record, name) for name in FIELDS if getattr(record, name, None)}
        for name, pattern in (("switch", _SWITCH), ("run", _RUN)):
            if name not in found and (match := pattern.search(text)):
                found[name] = int(match[1]) if name == "run" else match[1]
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        when = f"{stamp}.{record.msecs:03.0f}Z"
        if record.exc_info:
            text = f"{text}\n{self.formatException(record.exc_info)}"
        if self._kind == "json":
            return json.dumps({"time": when, "level": record.levelname.lower(), **found, "text": text})
        beside = " ".join(
            f"{name}={','.join(value) if isinstance(value, list) else value}" for name, value in found.items()
        )
        return f"{when} {record.levelname.lower():<7} {f'[{beside}] ' if beside else ''}{_one_line(text)}"


def write_to(stream: TextIO, kind: Literal["text", "json"] = "text") -> None:
    """Write the service's log, and warnings of all libraries, to a stream, one line per record."""
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Format(kind))
    logging.getLogger().handlers[:] = [handler]
    logging.getLogger("ina").setLevel(logging.INFO)


async def log_decisions(service: Daemon) -> None:
    """Write each decision to the log that is made after the service is ready, until cancelled.

    An earlier service has logged the decisions that this service found in its state.
    """
    while service.ready:
        await asyncio.sleep(READY_S)
    async for number, entry in service.watch(service.ledger.recovered_lines):
        _decisions.info(
            "%s",
            entry.text,
            extra={"decision": number, "event": entry.event, "jobs": list(entry.jobs)},
        )


def _one_line(text: str) -> str:
    """Return a text with escapes in place of characters that could move the cursor, or begin another line."""
    return "".join(each if each.isprintable() else ascii(each)[1:-1] for each in text)


def tell(*lines: str, environment: Mapping[str, str] = os.environ) -> None:
    """Send lines such as ``READY=1`` to the supervisor, if there is one."""
    path = environment.get("NOTIFY_SOCKET", "")
    where = "\0" + path[1:] if path.startswith("@") else path
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.sendto("\n".join(lines).encode(), where)


def watchdog_s(environment: Mapping[str, str] = os.environ) -> float | None:
    """Return the interval, in s, at which the supervisor must learn that the service lives.

    None: the supervisor expects no such messages. The interval is half of the supervisor's time limit, as
    sd_watchdog_enabled(3) recommends.
    """
    allowed = environment.get("WATCHDOG_USEC", "")
    of_us = environment.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
    return int(allowed) / 2e6 if of_us and allowed.isdecimal() and int(allowed) else None


async def notify(service: Daemon, where: str) -> None:
    """Tell the supervisor once that the service at address `where` is ready, then regularly that it lives.

    This continues until cancelled. The messages are sent from the service's own loop: if that hangs, the
    supervisor receives none.
    """
    try:
        while service.ready:
            await asyncio.sleep(READY_S)
        tell("READY=1", f"STATUS=serving at {where}")
        every_s = watchdog_s()
        while every_s is not None:
            tell("WATCHDOG=1")
            await asyncio.sleep(every_s)
        await asyncio.Event().wait()
    finally:
        tell("STOPPING=1", "STATUS=ending; jobs keep running")
