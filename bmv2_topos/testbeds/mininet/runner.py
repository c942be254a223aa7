"""Testbeds whose nodes and links Mininet makes, in a separate process (`hold`).

The names of the namespaces, the addresses and the switches are as in `testbeds.netns`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from bmv2_topos.testbeds.mininet.package import find
from bmv2_topos.testbeds.netns import Program, State, StepFailed, check_here
from bmv2_topos.testbeds.netns.commands import Command, neighbour_lines, rates
from bmv2_topos.testbeds.netns.names import namespace
from bmv2_topos.testbeds.netns.targets import target_of
from bmv2_topos.testbeds.netns.testbed import compiling, run_step, start
from controller.vocabulary import Topology
from hostlib.launch import command_line

MININET = "mininet"
HOLDER = "mininet"
"""Name of the node whose namespace Mininet itself runs in."""


def up(
    name: str,
    topology: Topology,
    program: Program,
    *,
    on_step: Callable[[str], None] = lambda text: None,
) -> State:
    """Start a testbed in Mininet; see `bmv2_topos.testbeds.netns.up`. Raises MissingRequirement."""
    check_here()
    find()
    return start(State(name, MININET, topology, program), _make, on_step)


def commands_of(name: str, topology: Topology, program: Program) -> list[Command]:
    """Return every command that `up` would run, in order; the tools need not be installed.

    Mininet makes nodes and links by itself; ``PID-of-NODE`` stands for the process id of a node. Switches are
    started in their nodes. Raises NetnsError, ProgramMismatch.
    """
    state = State(name, MININET, topology, program)
    nodes = {node: f"PID-of-{node}" for node in (*topology.ports, *(host.name for host in topology.servers))}
    target = target_of(program)
    return [
        *compiling(state),
        *_holding(name),
        *(
            Command(
                ("mnexec", "-a", nodes[switch], *target.argv(topology, switch, program, state.socket(switch)))
            )
            for switch in topology.ports
        ),
        *_around(state, nodes),
    ]


def _holding(name: str) -> tuple[Command, Command]:
    """Return the command that makes Mininet's namespace, and the command that runs Mininet there."""
    home = namespace(name, HOLDER)
    hold = command_line.module("bmv2_topos.testbeds.mininet.hold", name)
    return Command(("ip", "netns", "add", home)), Command(("ip", "netns", "exec", home, *hold))


def _around(state: State, nodes: Mapping[str, object]) -> Iterator[Command]:
    """Yield the commands that complete Mininet's network; `nodes` are the nodes' process ids by name."""
    for node, process in nodes.items():
        yield Command(("ip", "netns", "attach", namespace(state.name, node), str(process)))
    for host in state.topology.servers:
        inside = ("ip", "-n", namespace(state.name, host.name), "-batch", "-")
        yield Command(inside, tuple(neighbour_lines(state.topology, host.name)))
    yield from rates(state.name, state.topology)
    yield from target_of(state.program).link_commands(state.name, state.topology)


def _make(state: State, on_step: Callable[[str], None]) -> dict[str, int]:
    on_step("starting Mininet and its switches")
    home, hold = _holding(state.name)
    run_step(home)
    held = _hold(state, hold)
    for command in _around(state, held["nodes"]):
        run_step(command)
    return dict(held["switches"])


def _hold(state: State, command: Command) -> Mapping[str, Any]:
    """Start the process that holds the network; return the process ids that it prints."""
    with state.log(HOLDER).open("w") as log:
        process = subprocess.Popen(
            command.argv,
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
            tail = state.log(HOLDER).read_text().strip().splitlines() or ["no output"]
            raise StepFailed(f"Mininet did not start: {tail[-1]} (whole log: {state.log(HOLDER)})") from None
    return held
