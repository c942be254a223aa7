"""A testbed whose nodes are Mininet's: made and held by a process of its own (`hold`).

Its namespaces are given the names that those of the runner netns have; all else is as there.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from typing import Any

from bmv2_topos.testbeds.mininet.package import find
from bmv2_topos.testbeds.netns import Program, State, StepFailed, check_here
from bmv2_topos.testbeds.netns.commands import Command, neighbour_lines, rates
from bmv2_topos.testbeds.netns.names import namespace
from bmv2_topos.testbeds.netns.targets import target_of
from bmv2_topos.testbeds.netns.testbed import bring, run_step
from controller.vocabulary import Topology
from hostlib import command_line

MININET = "mininet"
HOLDER = "mininet"
"""Node whose namespace Mininet itself runs in."""


def up(
    name: str,
    topology: Topology,
    program: Program,
    *,
    on_step: Callable[[str], None] = lambda text: None,
) -> State:
    """Start a testbed in Mininet; see `bmv2_topos.testbeds.netns.up`. Raises NotHere without Mininet."""
    check_here()
    find()
    return bring(State(name, MININET, topology, program), _make, on_step)


def _make(state: State, on_step: Callable[[str], None]) -> dict[str, int]:
    on_step("starting Mininet and its switches")
    run_step(Command(("ip", "netns", "add", namespace(state.name, HOLDER))))
    held = _hold(state)
    for node, process in held["nodes"].items():
        run_step(Command(("ip", "netns", "attach", namespace(state.name, node), str(process))))
    for host in state.topology.servers:
        inside = ("ip", "-n", namespace(state.name, host.name), "-batch", "-")
        run_step(Command(inside, tuple(neighbour_lines(state.topology, host.name))))
    for command in rates(state.name, state.topology):
        run_step(command)
    for command in target_of(state.program).link_commands(state.name, state.topology):
        run_step(command)
    return dict(held["switches"])


def _hold(state: State) -> Mapping[str, Any]:
    """Start the process that holds the network; return the process ids that it tells."""
    hold = command_line.module("bmv2_topos.testbeds.mininet.hold", state.name)
    with state.log(HOLDER).open("w") as log:
        process = subprocess.Popen(
            ["ip", "netns", "exec", namespace(state.name, HOLDER), *hold],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )
    assert process.stdout is not None
    with process.stdout as lines:
        try:
            held: Mapping[str, Any] = json.loads(lines.readline())
        except ValueError:
            said = state.log(HOLDER).read_text().strip().splitlines() or ["it said nothing"]
            raise StepFailed(f"Mininet did not start: {said[-1]} (all of it: {state.log(HOLDER)})") from None
    return held
