"""``ina fallback --serve``: the fallback server of a machine, for the jobs of all machines."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path

from controller.switches.layout import fallback_udp_port
from controller.vocabulary import read_topology
from hostlib.io.interfaces import known_as
from ina.cli.cluster_options import required
from ina.cli.errors import USAGE, Failure
from ina.runtime import machine_hosts
from ina.runtime.fallback_process import FallbackProcess
from ina.runtime.fallback_service import FallbackService, check_secret, wait_until_ended
from ina.runtime.sweeper import Sweeper


def serve_machine(cluster: Path | None, machine: str | None, lanes: int, more: Sequence[str]) -> None:
    """Serve until a signal comes, or the server has ended for good.

    Args:
        cluster: The cluster file.
        machine: Name of this machine there; None: by its names and addresses.
        lanes: Values per packet.
        more: Further options of the server's own process.

    Raises Failure, BadRun.
    """
    secret = os.environ.get("INA_TOKEN", "")
    check_secret(secret)
    topology = read_topology(required(cluster, "--serve"))
    name = machine_hosts.identified(topology, [machine] if machine else known_as())
    server = topology.server[name]
    if not server.serves_fallback_at:
        raise Failure(
            f"machine {name!r} has neither the role fallback nor a fallback_port in the cluster file",
            exit_code=USAGE,
        )
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    local = f"{topology.ip(name)}:{fallback_udp_port(topology, name)}"
    switch = machine_hosts.switch_address(topology)
    options = ["--transport", "udp", "--switch", switch, "--local", local, "--lanes", str(lanes), *more]
    if server.serves_beside_workers:
        options.append("--beside-workers")
    fallback = FallbackProcess(topology.port_to(topology.rack_of[name], name), options)
    try:
        address = (machine_hosts.reached_at(topology, name), server.serves_fallback_at)
        with FallbackService(fallback, address, secret, lanes=lanes) as service, Sweeper(topology):
            print(json.dumps({"ready": {"serves": service.address, "machine": name}}), flush=True)
            if why := wait_until_ended(fallback, stopped):
                raise Failure(why)
    finally:
        fallback.stop()
