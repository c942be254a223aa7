"""A testbed of network namespaces: brought up, used by any number of commands, taken down."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from bmv2_topos.spec import Topology
from bmv2_topos.testbeds.netns import namespaces, store
from bmv2_topos.testbeds.netns.commands import Command, Program, bring_up, switch_command
from bmv2_topos.testbeds.netns.errors import NoTestbed, NotHere, StepFailed, Taken
from bmv2_topos.testbeds.netns.forwarding import entries
from bmv2_topos.testbeds.netns.names import check_name, check_nodes, namespace, prefix
from bmv2_topos.testbeds.netns.store import State
from controller import Controller
from controller.errors import NoProgram, UnknownName

NETNS = "netns"


def planned(name: str, topology: Topology, program: Program) -> list[Command]:
    """Return every command that `up` would run, in order. Raises BadName."""
    check_name(name)
    check_nodes(topology)
    state = State(name, NETNS, topology, program)
    return [*bring_up(name, topology), *_switch_commands(state).values()]


def up(
    name: str,
    topology: Topology,
    program: Program,
    *,
    on_step: Callable[[str], None] = lambda text: None,
) -> State:
    """Bring a testbed up; it stays until `down`. `on_step` is told what is being done.

    Raises LiveError, with nothing left of it; so does an interrupt.
    """
    return bring(State(name, NETNS, topology, program), _make_namespaces, on_step)


def bring(
    state: State,
    make: Callable[[State], None],
    on_step: Callable[[str], None] = lambda text: None,
) -> State:
    """Bring a testbed up whose namespaces `make` makes. As `up`."""
    check_name(state.name)
    check_nodes(state.topology)
    namespaces.check_here()
    with store.locked(state.name):
        _check_free(state.name)
        state.folder.mkdir(mode=0o755)
        try:
            state.save()
            on_step("making namespaces and links")
            make(state)
            on_step("starting the switches")
            state = replace(state, switches=_start_switches(state))
            state.save()
            on_step("setting up forwarding")
            _install(state, on_step)
            state = replace(state, complete=True)
            state.save()
        except BaseException:
            _clear(state.name)
            raise
    return state


def down(name: str) -> bool:
    """Take down a testbed, or what is left of one; return whether there was anything. Raises LiveError."""
    check_name(name)
    there = bool(namespaces.existing(prefix(name))) or store.folder(name).exists()
    if there:
        namespaces.check_here()
        with store.locked(name):
            _clear(name)
    return there


def find(name: str | None) -> State:
    """Return a testbed that is up; None: the only one. Raises NoTestbed."""
    state = store.load(name or store.the_only_one())
    if not state.complete:
        raise NoTestbed(f"testbed {state.name!r} was not finished: ina topo down {state.name}")
    return state


def execute(state: State, host: str, command: Sequence[str]) -> NoReturn:
    """Become a command at a node of a testbed. Raises LiveError."""
    node = namespace(state.name, host)
    if not namespaces.existing(node):
        names = ", ".join(
            each.removeprefix(prefix(state.name)) for each in namespaces.existing(prefix(state.name))
        )
        raise NoTestbed(f"testbed {state.name!r} has no node {host!r}; it has {names or 'none any more'}")
    namespaces.check_here()
    try:
        os.execvp("ip", ["ip", "netns", "exec", node, *command])
    except OSError as error:
        raise NotHere(f"cannot run ip: {error.strerror}") from error


@contextlib.contextmanager
def controllers(state: State) -> Iterator[Mapping[str, Controller]]:
    """Connect to all switches. Raises ControllerError."""
    with contextlib.ExitStack() as stack:
        yield {
            switch: stack.enter_context(Controller.connect(f"unix:{state.socket(switch)}"))
            for switch in state.topology.ports
        }


def run_step(command: Command) -> None:
    """Run a command. Raises StepFailed."""
    done = subprocess.run(command.argv, input="\n".join(command.lines), capture_output=True, text=True)
    if done.returncode:
        raise StepFailed(f"{command.text.splitlines()[0]}: {done.stderr.strip() or done.returncode}")


def _install(state: State, on_step: Callable[[str], None]) -> None:
    """Write the rows of ordinary forwarding; a program of one's own may have no tables for them."""
    with controllers(state) as at:
        for switch, controller in at.items():
            try:
                controller.install(entries(state.topology, switch))
            except (NoProgram, UnknownName) as error:
                if not state.program.own:
                    raise
                on_step(
                    f"{switch}: forwarding is left to you (P4Runtime at unix:{state.socket(switch)}): {error}"
                )


def _make_namespaces(state: State) -> None:
    for command in bring_up(state.name, state.topology):
        run_step(command)


def _check_free(name: str) -> None:
    what = None
    if store.folder(name).exists():
        what = f"testbed {name!r} is up, or something is left of it"
    elif left := namespaces.existing(prefix(name)):
        what = f"network namespace {left[0]} is there already"
    if what:
        raise Taken(f"{what}: take it down (ina topo down {name}), or give another name (--name)")


def _switch_commands(state: State) -> dict[str, Command]:
    return {
        switch: switch_command(state.name, state.topology, switch, state.program, state.socket(switch))
        for switch in state.topology.ports
    }


def _start_switches(state: State) -> dict[str, int]:
    """Start all switches, as processes that outlive this one. Return their ids."""
    (first, command), *others = _switch_commands(state).items()
    started = {first: _start(state, first, command)}
    _wait_for(state, first, started[first])  # which has the program compiled, for all
    started |= {switch: _start(state, switch, command) for switch, command in others}
    for switch, _ in others:
        _wait_for(state, switch, started[switch])
    return {switch: process.pid for switch, process in started.items()}


def _start(state: State, switch: str, command: Command) -> subprocess.Popen[str]:
    with state.log(switch).open("w") as log:
        return subprocess.Popen(
            command.argv,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
        )


def _wait_for(state: State, switch: str, process: subprocess.Popen[str]) -> None:
    """Wait until a switch serves. Raises StepFailed."""
    assert process.stdout is not None
    with process.stdout as lines:
        try:
            json.loads(lines.readline())
        except ValueError:
            said = state.log(switch).read_text().strip() or "it said nothing"
            raise StepFailed(f"switch {switch} did not start: {said}") from None


def _clear(name: str) -> None:
    namespaces.remove(namespaces.existing(prefix(name)))
    store.forget(name)
