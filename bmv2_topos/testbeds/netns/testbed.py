"""A testbed of network namespaces: brought up, used by any number of commands, taken down."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NoReturn

from bmv2_topos.testbeds.netns import namespaces, store
from bmv2_topos.testbeds.netns.commands import Command, Program, bring_up, host_commands
from bmv2_topos.testbeds.netns.errors import MissingRequirement, NameTaken, NoTestbed, StepFailed
from bmv2_topos.testbeds.netns.forwarding import entries, offered
from bmv2_topos.testbeds.netns.names import check_name, check_nodes, interface, namespace, prefix
from bmv2_topos.testbeds.netns.serving import await_service, start_switch
from bmv2_topos.testbeds.netns.store import State
from bmv2_topos.testbeds.netns.targets import target_of
from controller import SwitchSession, connect
from controller.errors import UnknownName
from controller.interrupts import delay_interrupts, exit_on_signals
from controller.switches.model import SWITCH_IP
from controller.vocabulary import Topology
from controller.vocabulary.graphs import pinned

NETNS = "netns"
_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def commands_of(name: str, topology: Topology, program: Program) -> list[Command]:
    """Return every command that `up` would run, in order; the tools need not be installed.

    Raises NetnsError, ProgramMismatch.
    """
    state = State(name, NETNS, topology, program)
    return [
        *compiling(state),
        *bring_up(name, topology),
        *target_of(program).link_commands(name, topology),
        *_switch_commands(state).values(),
        *host_commands(name, topology),
    ]


def compiling(state: State) -> list[Command]:
    """Return the commands that compile a testbed's program. Raises NetnsError, ProgramMismatch."""
    _check(state)
    return target_of(state.program).compiling(state.program, state.folder)


def up(
    name: str,
    topology: Topology,
    program: Program,
    *,
    on_step: Callable[[str], None] = lambda text: None,
) -> State:
    """Start a testbed; it runs until `down`.

    Args:
        name: Name of the testbed.
        topology: Switches, hosts and links.
        program: The switches' program.
        on_step: Called with a text before each step.

    Raises NetnsError, with nothing left behind; an interrupt leaves nothing behind, either.
    """
    return start(State(name, NETNS, topology, program), _make, on_step)


def start(
    state: State,
    make: Callable[[State, Callable[[str], None]], dict[str, int]],
    on_step: Callable[[str], None] = lambda text: None,
) -> State:
    """Start a testbed as `up` does; `make` makes all parts and returns the switches' process ids.

    Raises the errors of `up`, and ProgramMismatch for an unknown program or an unsupported number of lanes.
    """
    namespaces.check_here()
    _check(state)
    target_of(state.program).check_here(state.topology, state.program)
    with store.locked(state.name):
        _check_free(state.name)
        state.folder.mkdir(mode=0o755)
        try:
            state.save()
            _compile(state, on_step)
            state = replace(state, switches=make(state, on_step))
            state.save()
            on_step("setting up forwarding")
            _install(state, on_step)
            for command in host_commands(state.name, state.topology):
                try:
                    run_step(command)
                except StepFailed as error:  # reported, as for a command typed in a shell there
                    on_step(str(error))
            state = replace(state, complete=True)
            state.save()
        except BaseException:
            _clear(state.name)
            raise
    return state


def down(name: str) -> bool:
    """Take down a testbed, even an incomplete one; return False if there is none. Raises NetnsError."""
    check_name(name)
    exists = bool(namespaces.existing(prefix(name))) or store.folder(name).exists()
    if exists:
        namespaces.check_here()
        with store.locked(name):
            _clear(name)
    return exists


@contextlib.contextmanager
def temporary(name: str, topology: Topology, program: Program) -> Iterator[State]:
    """Keep a testbed up for the duration of the block; an interrupt or SIGTERM also takes it down.

    Raises NetnsError.
    """
    with exit_on_signals():
        state = up(name, topology, program)
        try:
            yield state
        finally:
            down(name)


def find(name: str | None) -> State:
    """Return the state of a testbed; if `name` is None, of the only testbed that is up. Raises NoTestbed."""
    state = store.load(name or store.the_only_one())
    if not state.complete:
        raise NoTestbed(
            f"testbed {state.name!r} was not started completely; take it down: ina topo down {state.name}"
        )
    return state


def cluster_topology(state: State) -> Topology:
    """Return a testbed's topology for a cluster file, with the testbed's addresses, ports and interfaces."""
    topology = pinned(state.topology)
    return replace(
        topology,
        switches=tuple(
            replace(switch, p4runtime=f"unix:{state.socket(switch.name)}") for switch in topology.switches
        ),
        servers=tuple(replace(server, interface=interface(server.name)) for server in topology.servers),
        switch_ip=SWITCH_IP,
    )


def execute(state: State, host: str, command: Sequence[str]) -> NoReturn:
    """Replace this process by a command that runs in the namespace of a node. Raises NetnsError."""
    node = namespace(state.name, host)
    if not namespaces.existing(node):
        names = ", ".join(
            each.removeprefix(prefix(state.name)) for each in namespaces.existing(prefix(state.name))
        )
        other = f"; give --name {host} if you mean that testbed" if host in store.known() else ""
        raise NoTestbed(
            f"testbed {state.name!r} has no node {host!r}; it has {names or 'none any more'}{other}"
        )
    namespaces.check_here()
    try:
        os.execvp("ip", ["ip", "netns", "exec", node, *command])
    except OSError as error:
        raise MissingRequirement(f"cannot run ip: {error.strerror}") from error


@contextlib.contextmanager
def controllers(state: State) -> Iterator[Mapping[str, SwitchSession]]:
    """Connect to all switches, and yield the sessions by the switch's name. Raises ControllerError."""
    with contextlib.ExitStack() as stack:
        yield {
            switch: stack.enter_context(connect(f"unix:{state.socket(switch)}"))
            for switch in state.topology.ports
        }


def run_step(command: Command) -> None:
    """Run a command to its end; an interrupt kills it. Raises StepFailed, with the command's output."""
    pipe, process = subprocess.PIPE, None
    try:
        with delay_interrupts(_ENDS, blocked=False):
            process = subprocess.Popen(command.argv, stdin=pipe, stdout=pipe, stderr=pipe, text=True)
        _, errors = process.communicate("\n".join(command.lines))
    except BaseException:
        if process is not None:
            with process:  # otherwise it could recreate parts that are being removed
                process.kill()
        raise
    if process.returncode:
        raise StepFailed(f"{command.text.splitlines()[0]}: {errors.strip() or process.returncode}")


def _install(state: State, on_step: Callable[[str], None]) -> None:
    """Write the rows of ordinary forwarding to all switches; a user's program may lack tables for them."""
    with controllers(state) as at:
        target_of(state.program).load(state.program, state.folder, at)
        for switch, controller in at.items():
            try:
                controller.install(offered(entries(state.topology, switch), controller.program))
            except UnknownName as error:
                if not state.program.own:
                    raise
                if files := state.topology.switch[switch].runtime:
                    on_step(f"{switch}: gets the table entries of {', '.join(files)} only")
                    continue
                on_step(
                    f"{switch}: has no forwarding entries; write your own over P4Runtime at"
                    f" unix:{state.socket(switch)}: {error}"
                )


def _check(state: State) -> None:
    check_name(state.name)
    check_nodes(state.topology)
    target_of(state.program).check(state.topology, state.program)


def _compile(state: State, on_step: Callable[[str], None]) -> None:
    for command in target_of(state.program).compiling(state.program, state.folder):
        on_step(f"compiling {state.program.name}")
        run_step(command)


def _make(state: State, on_step: Callable[[str], None]) -> dict[str, int]:
    on_step("making namespaces and links")
    for command in bring_up(state.name, state.topology):
        run_step(command)
    for command in target_of(state.program).link_commands(state.name, state.topology):
        run_step(command)
    on_step("starting the switches")
    return _start_switches(state)


def _check_free(name: str) -> None:
    what = None
    if store.folder(name).exists():
        what = f"testbed {name!r} is up, or its files are left"
    elif left := namespaces.existing(prefix(name)):
        what = f"network namespace {left[0]} already exists"
    if what:
        raise NameTaken(f"{what}: take it down (ina topo down {name}), or give another name (--name)")


def _switch_commands(state: State) -> dict[str, Command]:
    commands = {}
    for switch in state.topology.ports:
        inside = ("ip", "netns", "exec", namespace(state.name, switch))
        argv = target_of(state.program).argv(state.topology, switch, state.program, state.socket(switch))
        commands[switch] = Command((*inside, *argv))
    return commands


def _start_switches(state: State) -> dict[str, int]:
    """Start all switches, as processes that outlive this one. Return the process ids by switch."""
    (first, command), *later = _switch_commands(state).items()
    started = {first: start_switch(command.argv, state.log(first))}
    # the first switch compiles the program, for all
    await_service(first, started[first], state.socket(first), state.log(first))
    started |= {switch: start_switch(command.argv, state.log(switch)) for switch, command in later}
    for switch, process in started.items():
        await_service(switch, process, state.socket(switch), state.log(switch))
    return {switch: process.pid for switch, process in started.items()}


def _clear(name: str) -> None:
    namespaces.remove(namespaces.existing(prefix(name)))
    store.forget(name)
