"""Runs the service of ``ina controller`` until a signal arrives."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from controller.policies.settings import AllocationSettings
from ina.api import Address, Certificate, listening, speaking
from ina.api.guard import Listener
from ina.cli.command import say
from ina.cli.errors import Interrupted
from ina.cli.options import TlsOptions
from ina.cli.service.controller import ControllerSettings
from ina.run.daemon import Daemon
from ina.run.launch.engines import EngineChoice
from ina.run.policies import Policies, read_policies
from ina.run.records import DAY_S, Retention
from ina.run.serve import Files, log_decisions, notify, opened, reloading, write_to
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

    with contextlib.ExitStack() as if_refused:
        if not folder.exists():
            if_refused.callback(shutil.rmtree, folder, ignore_errors=True)
        with (
            locked(
                folder,
                on_wait=lambda holder: say(f"ina: {holder} uses this state; waiting until it has ended"),
            ),
            # before the state is opened, which may take switches from another controller
            listening(address, tokens, certificate) as bound,
        ):
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
    numbers = [
        number
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    before = {number: signal.getsignal(number) for number in numbers}

    def end(number: int) -> None:
        if not ended.done():
            ended.set_result(number)

    for number in numbers:
        loop.add_signal_handler(number, end, number)
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])
