"""Runs the service of ``ina controller`` until a signal arrives; writes its log and tells its supervisor.

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
import shutil
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TextIO

from controller.policies.settings import AllocationSettings
from ina.api import Address, Certificate, listening, speaking
from ina.api.guard import Listener
from ina.cli.command import say
from ina.cli.errors import Interrupted
from ina.cli.options import TlsOptions
from ina.cli.service.controller import ControllerSettings
from ina.run.assembly import Files, opened, reloading
from ina.run.daemon import Daemon
from ina.run.launch.engines import EngineChoice
from ina.run.policies import Policies, read_policies
from ina.run.records import DAY_S, Retention
from ina.run.site import MachineSite, Site, TestbedSite, read_cluster
from ina.run.store import locked
from ina.run.tokens import Tokens


def serve(asked: ControllerSettings, folder: Path) -> None:
    """Run the controller with checked settings and the state in `folder` until a signal arrives.

    Raises Interrupted when a signal has arrived.
    """
    address = Address.parse(asked.listen)
    engine = EngineChoice(asked.launched, asked.licence, asked.launch_with, tuple(asked.pass_env or ()))  # type: ignore[arg-type]  # checked
    retention = Retention(asked.keep_jobs, asked.keep_days * DAY_S)
    around = AllocationSettings(period_s=asked.period)
    site = _site(asked)
    policies = _policies(asked, around, len(site.cluster.servers))
    given = policies if asked.policies_file is None else read_policies(asked.policies_file, policies)
    files = Files(
        asked.cluster and asked.cluster.absolute(),
        asked.policies_file and asked.policies_file.absolute(),
        policies,
    )
    write_to(sys.stderr, "json" if asked.log == "json" else "text")
    tokens = Tokens(folder)
    certificate = Certificate(asked.tls_cert, asked.tls_key) if asked.tls_cert and asked.tls_key else None

    async def until_signalled(bound: Listener) -> int:
        """Run the service until a signal arrives, and return its number."""
        ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        service_there = opened(
            folder, site, given, engine=engine, retention=retention, take_over=asked.take_over
        )
        async with service_there as service:
            if_refused.pop_all()
            with _signals(ended):
                if files.policies is not None or files.cluster is not None:
                    asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, reloading(service, files))
                speaks = speaking(
                    service,
                    address,
                    bound,
                    tokens,
                    certificate=certificate,
                    reload=lambda: files.reload(service),
                )
                await _answering(service, speaks, ended)
        return ended.result()

    is_new = not folder.exists()
    with (
        locked(
            folder, on_wait=lambda holder: say(f"ina: {holder} uses this state; waiting until it has ended")
        ),
        contextlib.ExitStack() as if_refused,
    ):
        # only with the lock is it known that no other controller has begun a state there meanwhile
        if is_new and [each.name for each in folder.iterdir()] == ["lock"]:
            if_refused.callback(shutil.rmtree, folder, ignore_errors=True)
        # before the state is opened, which may take switches from another controller
        with listening(address, tokens, certificate) as bound:
            raise Interrupted(asyncio.run(until_signalled(bound)))


async def _answering(
    service: Daemon, speaks: contextlib.AbstractAsyncContextManager[str], ended: asyncio.Future[int]
) -> None:
    """Run a service and answer requests until the service has ended, or a signal has arrived."""
    running = asyncio.create_task(service.run())
    try:
        async with speaks as url:
            say(f"ina: controller at {url}")
            beside = [
                asyncio.create_task(log_decisions(service)),
                asyncio.create_task(notify(service, url)),
            ]
            either: set[asyncio.Future[Any]] = {running, ended}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            for task in beside:
                task.cancel()
            await asyncio.gather(*beside, return_exceptions=True)
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


def _site(settings: ControllerSettings) -> Site:
    if settings.cluster is None:
        return TestbedSite.find(settings.testbed)
    tls = TlsOptions(
        tls_ca=settings.switch_ca, tls_cert=settings.switch_cert, tls_key=settings.switch_key
    ).tls("")
    cluster = read_cluster(settings.cluster)
    return MachineSite(
        cluster=cluster, program=settings.program, lanes=settings.lanes, target=settings.target, tls=tls
    )


def _policies(settings: ControllerSettings, around: AllocationSettings, servers: int) -> Policies:
    """Return the policies that the options name, with defaults for the size of the cluster."""
    names = {
        "scheduler": settings.scheduler,
        "placement": settings.placement,
        "routing": settings.routing,
        "memory": settings.memory,
    }
    return Policies.by_default(
        servers,
        {kind: name for kind, name in names.items() if name is not None},
        around,
        interval_s=settings.asking.interval,
        retries=settings.asking.retries,
    )


@contextlib.contextmanager
def _signals(ended: asyncio.Future[int]) -> Iterator[None]:
    """Inside the context, let SIGINT, SIGTERM and SIGHUP set the result of `ended` to their number."""
    loop = asyncio.get_running_loop()
    before = {
        number: signal.getsignal(number)
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    }

    def end(number: int) -> None:
        if not ended.done():
            ended.set_result(number)

    for number in before:
        loop.add_signal_handler(number, end, number)
    try:
        yield
    finally:
        for number, handler in before.items():
            loop.remove_signal_handler(number)
            signal.signal(number, handler)


# --------------------------------------------------------------------------- log and supervisor


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
