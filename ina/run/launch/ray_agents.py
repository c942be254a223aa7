"""Runs on Ray: the agents of a run, the driver of Ray Train, and the process that watches Ray's nodes.

An agent is an actor on a server of the run, placed there by a placement group. The runner is a driver of Ray:
when the runner ends, for any reason, Ray ends the actors and the workers that they have started. If the job's
command is itself a driver of Ray, the runner starts the command once, and Ray Train starts the workers.

This module needs Ray.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import ray
from ray.exceptions import RayError
from ray.util import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from controller.vocabulary import Topology
from hostlib.launch.launcher import LaunchError, Output, Workers
from hostlib.version import PROTOCOL
from ina.run.launch import agent
from ina.run.launch.agents import HANG_S, Agent, Agents
from ina.run.launch.machine_hosts import reached_at

LOOK_S: Final = 0.5
WATCH_S: Final = 1.0
SAY_S: Final = 1.0
"""Maximum time, in s, for which `AgentActor.lines` waits for the agent's next line."""
PINNED: Final = 0.001
"""Amount of the resource ``node:ADDRESS`` that a bundle requests. Only the node at that address has this
resource, so that Ray places the bundle there."""


def connect() -> None:
    """Become a driver of the cluster at ``RAY_ADDRESS``, or of this machine's cluster.

    Raises LaunchError.
    """
    try:
        ray.init(address="auto", namespace="ina", log_to_driver=False, logging_level="ERROR")
    except (RayError, ConnectionError, RuntimeError, ValueError) as error:
        raise LaunchError(f"cannot connect to Ray: {error}") from error


class RayNode(NamedTuple):
    """A node of Ray: its node id, its IP address, and whether it has GPUs."""

    number: str
    address: str
    has_gpu: bool


def nodes() -> dict[str, RayNode]:
    """Return the nodes of Ray that live and answer; each node is found by two keys, its name and its address.

    A node answers if it accepts a TCP connection within `HANG_S`. Ray alone counts a node as living for some
    15 s after its end.
    """
    found = {}
    living = [each for each in ray.nodes() if each["Alive"]]
    with ThreadPoolExecutor(min(len(living), 64) or 1) as pool:  # this runs every second
        for each, answers in zip(living, pool.map(_answers, living), strict=True):
            if answers:
                address = str(each["NodeManagerAddress"])
                node = RayNode(str(each["NodeID"]), address, "GPU" in each["Resources"])
                found[address] = found[str(each.get("NodeName", address))] = node
    return found


def _answers(node: Mapping[str, Any]) -> bool:
    with socket.socket() as probe:
        probe.settimeout(HANG_S)
        return probe.connect_ex((node["NodeManagerAddress"], node["NodeManagerPort"])) == 0


def placed(machines: Mapping[str, str]) -> dict[str, RayNode]:
    """Return the node of Ray on each machine, by the machine's name.

    `machines` maps names to addresses; a node matches by either. Raises LaunchError if a machine has no node.
    """
    known = nodes()
    found = {
        name: node
        for name, address in machines.items()
        if (node := known.get(name) or known.get(address)) is not None
    }
    if unknown := [name for name in machines if name not in found]:
        raise LaunchError(f"Ray has no node {', '.join(unknown)}; its nodes are {', '.join(sorted(known))}")
    return found


class _Lines:
    """An output stream for text, whose lines another thread reads from a queue."""

    def __init__(self) -> None:
        self.lines: queue.SimpleQueue[str] = queue.SimpleQueue()

    def write(self, text: str) -> int:
        """Append a line; ignore the newline that `print` writes separately."""
        if text != "\n":
            self.lines.put(text)
        return len(text)

    def flush(self) -> None:
        """Do nothing."""


class AgentActor:
    """An actor of Ray that runs an agent (`ina.run.launch.agent`).

    `hear` passes a line of input to the agent; `lines` returns the agent's output.
    """

    def __init__(self) -> None:
        self._orders: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._out = _Lines()
        here = agent.MachineAgent(iter(self._orders.get, None), self._out)  # type: ignore[arg-type]  # all that it uses
        self._thread = threading.Thread(target=here.run, daemon=True)
        self._thread.start()

    def hear(self, line: str | None) -> None:
        """Pass a line to the agent; None ends the agent's input."""
        self._orders.put(line)

    def lines(self) -> list[str] | None:
        """Return the lines that the agent has written since the last call; None: the agent has ended.

        If there are no lines, wait up to `SAY_S` seconds for one.
        """
        over = not self._thread.is_alive()
        found = []
        with contextlib.suppress(queue.Empty):
            found.append(self._out.lines.get(timeout=0 if over else SAY_S))
            while True:
                found.append(self._out.lines.get_nowait())
        return None if over and not found else found


class RayAgent(Agent):
    """Sends messages to an agent, and reads the agent's messages. The agent runs in an actor of Ray.

    The runner has an object of this class for each machine.
    """

    def __init__(self, machine: str, actor: Any) -> None:
        super().__init__(machine)
        self._actor = actor
        self._ended: str | None = None
        self._reader = threading.Thread(target=self._read, name=f"{machine} lines", daemon=True)
        self._reader.start()

    def ended(self) -> str | None:
        """Return why the agent has ended, as text for users; None while it runs."""
        return self._ended

    def say(self, message: object) -> None:
        """Send a message to the agent; do nothing if the agent is gone."""
        self._actor.hear.remote(json.dumps(message))

    def close(self) -> None:
        """Request the end of the agent and of the ranks that it started, and return at once."""
        self._actor.hear.remote(None)

    def wait(self, patience_s: float) -> None:
        """Wait up to `patience_s` seconds for the agent's end after `close`; then kill its actor."""
        self._reader.join(patience_s)
        ray.kill(self._actor)

    def _read(self) -> None:
        try:
            while (lines := ray.get(self._actor.lines.remote())) is not None:
                for line in lines:
                    self._take(line)
            self._ended = "its agent has ended"
        except RayError as error:
            self._ended = f"its actor of Ray died: {' '.join(str(error).split())[:300]}"


@contextlib.contextmanager
def agents(
    machines: Mapping[str, str],
    *,
    name: str,
    ranks: Mapping[str, int],
    stopping: threading.Event,
    on_placed: Callable[[str], None],
) -> Iterator[Agents]:
    """Wait until Ray has room for a placement group of one bundle per machine; start an agent in each bundle.

    Args:
        machines: The machines' addresses, by name.
        name: The placement group's name.
        ranks: Number of ranks on each machine; each rank gets a CPU, and a GPU if the machine has GPUs.
        stopping: The caller sets this event to end the wait for room.
        on_placed: Called with the number and the state of the placement group after each change.

    Raises LaunchError.
    """
    at = placed(machines)
    gpus = {each: ranks[each] if node.has_gpu else 0 for each, node in at.items()}
    bundles = [
        {"CPU": ranks[each], f"node:{node.address}": PINNED} | ({"GPU": gpus[each]} if gpus[each] else {})
        for each, node in at.items()
    ]
    group = placement_group(bundles, strategy="PACK", name=name)
    number = group.id.hex()
    try:
        on_placed(f"Ray placement group {number}, pending")
        while not group.wait(LOOK_S):
            if stopping.is_set():
                raise LaunchError("ended while it waited for free CPUs and GPUs in Ray")
        on_placed(f"Ray placement group {number}, created")
        actor = ray.remote(AgentActor)
        with Agents(
            {
                each: RayAgent(
                    each,
                    actor.options(
                        name=f"{name} {number[:8]} {each}",
                        max_concurrency=4,
                        num_cpus=ranks[each],
                        num_gpus=gpus[each],
                        scheduling_strategy=PlacementGroupSchedulingStrategy(group, bundle),
                    ).remote(),
                )
                for bundle, each in enumerate(machines)
            }
        ) as found:
            yield found
    finally:
        remove_placement_group(group)


class _Nobody:
    """Ignores the end of the driver's process, which is not a rank."""

    def ended(self, rank: int, status: int, reason: str) -> None:
        """Do nothing."""


def drive(
    command: Sequence[str],
    servers: Mapping[str, int],
    topology: Topology,
    inherited: Sequence[str],
    *,
    given: str,
    on_output: Output,
    stopping: threading.Event,
    on_placed: Callable[[str], None],
) -> str | None:
    """Run the driver of a job to its end, or until it is stopped.

    Args:
        command: Program and arguments of the driver.
        servers: The number of workers on each of the job's servers.
        topology: The cluster, with the addresses of its servers.
        inherited: Patterns of the variables that the driver inherits; see `Workers`.
        given: The run's order as JSON, which the workers get in ``INA_GIVEN`` for ``ina admit --given``.
        on_output: Called with the driver's output, as rank 0.
        stopping: The caller sets this event to end the driver.
        on_placed: Called with a text that names the workers' servers.

    Return the driver's error; "": none; None: it was stopped.

    Raises LaunchError if a server is no node of Ray, or the command cannot be run.
    """
    from ina.run.launch import ray_train  # imports Ray Train

    connect()
    at = placed({name: reached_at(topology, name) for name in servers})
    places = [at[name].number for name, workers in servers.items() for _ in range(workers)]
    driver = Workers(command, [ray_train.variables(given, places)], _Nobody(), on_output, inherited)
    on_placed(f"Ray Train on {', '.join(servers)}")
    failure = driver.wait(on_tick=lambda: driver.kill() if stopping.is_set() else None)
    error = "" if failure is None else f"the driver {failure.reason}"
    return None if stopping.is_set() else error


def watch() -> int:
    """Print the nodes that answer every `WATCH_S`, until standard input ends with the parent process.

    The daemon starts this process, and so need not import Ray. Each line is a JSON object: ``alive`` has the
    names and addresses of all nodes that live and answer, ``began_s`` the time at which the look began, on
    this machine's monotonic clock, and ``protocol`` the version of this format. If the process cannot connect
    to Ray, it prints ``failed`` with the error, and ends.
    """
    threading.Thread(target=_end_with_starter, daemon=True).start()
    try:
        connect()
    except LaunchError as error:
        print(json.dumps({"failed": str(error)}), flush=True)
        return 1
    while True:
        began_s = time.monotonic()
        alive = sorted(nodes())
        print(json.dumps({"alive": alive, "began_s": began_s, "protocol": PROTOCOL}), flush=True)
        time.sleep(WATCH_S)


def _end_with_starter() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    raise SystemExit(watch())
