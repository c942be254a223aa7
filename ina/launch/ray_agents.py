"""The agents of a run on Ray: an actor on each server of the run, placed there by a placement group.

Only imported with Ray installed. The runner is the driver of Ray. However the runner ends, Ray then ends the
actors, and with them the workers that they have started.
"""

from __future__ import annotations

import contextlib
import json
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import ray
from ray.exceptions import RayError
from ray.util import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from hostlib.launch.launcher import LaunchError
from ina.launch import agent
from ina.launch.agents import Agent, Agents

LOOK_S: Final = 0.5
SAY_S: Final = 1.0
"""Longest time for which an actor waits for lines before it answers a request for them."""
PINNED: Final = 0.001
"""Amount of a node's own resource (``node:ADDRESS``) that a bundle requests, so that Ray places it there."""


def connect() -> None:
    """Become a driver of the cluster at ``RAY_ADDRESS``, or of this machine's cluster.

    Raises LaunchError.
    """
    try:
        ray.init(address="auto", namespace="ina", log_to_driver=False, logging_level="ERROR")
    except (RayError, ConnectionError, RuntimeError, ValueError) as error:
        raise LaunchError(f"cannot connect to Ray: {error}") from error


class RayNode(NamedTuple):
    """A living node of Ray."""

    number: str
    address: str
    has_gpu: bool


def nodes() -> dict[str, RayNode]:
    """Return the living nodes; each has two keys, its name and its address."""
    found = {}
    for each in ray.nodes():
        if each["Alive"]:
            address = str(each["NodeManagerAddress"])
            node = RayNode(str(each["NodeID"]), address, "GPU" in each["Resources"])
            found[address] = found[str(each.get("NodeName", address))] = node
    return found


def placed(machines: Mapping[str, str]) -> dict[str, RayNode]:
    """Return the node of each machine, found by name or address. Raises LaunchError if one has no node."""
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
    """An agent (`ina.launch.agent`) in an actor of Ray: methods pass lines to it, and return its lines."""

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
        """Return the agent's lines since the last call, after at most `SAY_S`; None: it has ended."""
        over = not self._thread.is_alive()
        found = []
        with contextlib.suppress(queue.Empty):
            found.append(self._out.lines.get(timeout=0 if over else SAY_S))
            while True:
                found.append(self._out.lines.get_nowait())
        return None if over and not found else found


class RayAgent(Agent):
    """The agent in an actor of Ray, as the runner sees it."""

    def __init__(self, machine: str, actor: Any) -> None:
        super().__init__(machine)
        self._actor = actor
        self._ended: str | None = None
        self._reader = threading.Thread(target=self._read, name=f"{machine} lines", daemon=True)
        self._reader.start()

    def ended(self) -> str | None:
        """Return why the agent has ended; None while it runs."""
        return self._ended

    def say(self, message: object) -> None:
        """Send a message; without effect if the agent is gone."""
        self._actor.hear.remote(json.dumps(message))

    def close(self) -> None:
        """End the agent and its processes."""
        self._actor.hear.remote(None)

    def wait(self, patience_s: float) -> None:
        """Wait for the end of a closed agent; kill the actor if it does not end."""
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
    """Start agents on machines, each in a bundle of a placement group, once Ray has room for all bundles.

    Args:
        machines: Addresses by the machines' names.
        name: The placement group's name.
        ranks: Number of ranks of each machine; each rank gets a CPU, and a GPU if the machine has GPUs.
        stopping: Set to end the wait for room.
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
