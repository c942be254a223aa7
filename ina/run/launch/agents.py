"""The machines of ``ina run --hosts``: an agent started on each by ssh, or by any other command."""

from __future__ import annotations

import collections
import contextlib
import json
import os
import shlex
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self, TextIO

from hostlib.launch import command_line
from hostlib.launch.launcher import (
    EndWatcher,
    LaunchError,
    Output,
    RunningWorkers,
    WorkerExit,
    end_process,
)
from hostlib.version import version
from ina.errors import BadRun
from ina.run.launch.agent import ALIVE_S, STARTER

START_S: Final = 30.0
"""Maximum time, in s, from the start of an agent to its first line of output."""
HANG_S: Final = 6.0
"""Time, in s, without a line from an agent after which its machine counts as lost. The time is shorter than
the time-outs of ranks, so that ranks on other machines fail with the lost machine as the reason."""
DONE_S: Final = 5.0
_TAIL: Final = 5
"""Number of lines of an agent's standard error to keep for messages."""


def launch_command(template: str, host: str, address: str, command: Sequence[str]) -> list[str]:
    """Return the command that runs `command` on a machine.

    Args:
        template: The launcher, such as ``ssh {host} {command}``. The word ``{command}`` is replaced by the
            command's words, but with ssh by the command, quoted for a shell. ``{command}`` inside a word is
            also replaced by the command, quoted for a shell.
        host: The machine's name, for ``{host}``.
        address: The machine's address, for ``{address}``.
        command: Program and arguments.

    >>> launch_command("ip netns exec {host} {command}", "h1", "10.0.0.1", ["echo", "a b"])
    ['ip', 'netns', 'exec', 'h1', 'echo', 'a b']
    >>> launch_command("sh -c 'cd /; exec {command}' {host}", "h1", "10.0.0.1", ["echo", "a b"])
    ['sh', '-c', "cd /; exec echo 'a b'", 'h1']

    Raises BadRun for a template without a host or without a command.
    """
    try:
        words = shlex.split(template)
    except ValueError as error:
        raise BadRun(f"{error}", setting="launch_with", value=repr(template)) from error
    text = " ".join(words)
    if "{command}" not in text or not ("{host}" in text or "{address}" in text):
        raise BadRun(
            "want {host} or {address}, and {command}, as in 'ssh {host} {command}'",
            setting="launch_with",
            value=repr(template),
        )
    found: list[str] = []
    for word in words:
        if word == "{command}":
            # ssh joins its words, and a shell reads them there
            found += [shlex.join(command)] if Path(words[0]).name == "ssh" else command
            continue
        named = word.replace("{host}", host).replace("{address}", address)
        found.append(named.replace("{command}", shlex.join(command)))
    return found


class Agent(ABC):
    """Sends messages to the agent of one machine, and stores the agent's messages.

    An object of this class is in the process that started the agent.

    The subclasses `LaunchedAgent` and `RayAgent` start agents in different ways.
    """

    def __init__(self, machine: str) -> None:
        self.machine = machine
        self.here: Mapping[str, Any] | None = None
        self.silent_s = 0.0
        """Seconds since the agent's last line. Time for which this process was suspended does not count."""
        self.exits: collections.deque[tuple[int, int, str]] = collections.deque()
        self.failed: str | None = None
        self.left_running: int | None = None
        self.on_output: Output = lambda rank, data, is_error: None

    @abstractmethod
    def ended(self) -> str | None:
        """Return why the agent has ended, as text for users; None while it runs."""

    @abstractmethod
    def say(self, message: object) -> None:
        """Send a message to the agent; do nothing if the agent is gone."""

    @abstractmethod
    def close(self) -> None:
        """Request the end of the agent and of the ranks that it started, and return at once."""

    @abstractmethod
    def wait(self, patience_s: float) -> None:
        """Wait for the agent's end after `close`; kill it if it still runs after `patience_s` seconds."""

    def _take(self, line: str) -> bool:
        """Handle a line of the agent's output; return False for a line that is not JSON."""
        try:
            message = json.loads(line)
        except ValueError:
            return False
        self.silent_s = 0.0
        match message:
            case {"here": {"version": str(), "store": int()} as here}:
                self.here = here
            case {"output": [int(rank), str(text), bool(is_error)]}:
                self.on_output(rank, text.encode("latin-1"), is_error)
            case {"exit": [int(rank), int(status), str(reason)]}:
                self.exits.append((rank, status, reason))
            case {"failed": str(reason)}:
                self.failed = reason
            case {"done": int(processes)}:
                self.left_running = processes
        return True


class LaunchedAgent(Agent):
    """An agent that a command such as ssh has started."""

    def __init__(self, machine: str, argv: Sequence[str]) -> None:
        """Start the agent. Raises LaunchError if the command cannot be run."""
        super().__init__(machine)
        self._errors: collections.deque[str] = collections.deque(maxlen=_TAIL)
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                env={**os.environ, STARTER: str(os.geteuid())},
                start_new_session=True,  # keyboard interrupts are for this process
            )
        except OSError as error:
            raise LaunchError(
                f"machine {machine}: cannot run {shlex.join(argv[:3])} …: {error.strerror}"
            ) from error
        self._readers = [
            threading.Thread(target=self._read, args=args, name=f"{machine} lines", daemon=True)
            for args in ((self._process.stdout, self._take), (self._process.stderr, lambda line: False))
        ]
        for reader in self._readers:
            reader.start()

    def ended(self) -> str | None:
        """Return why the agent has ended, as text for users; None while it runs."""
        status = self._process.poll()
        if status is None or any(reader.is_alive() for reader in self._readers):
            return None  # its last lines are still unread
        errors = f": {'; '.join(self._errors)}" if self._errors else ""
        how = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
        return f"its launch command {how}{errors}"

    def say(self, message: object) -> None:
        """Send a message to the agent; do nothing if the agent is gone."""
        with contextlib.suppress(OSError, ValueError):
            print(json.dumps(message), file=self._process.stdin, flush=True)

    def close(self) -> None:
        """Request the end of the agent and of the ranks that it started, and return at once."""
        with contextlib.suppress(OSError, ValueError):
            assert self._process.stdin is not None
            self._process.stdin.close()

    def wait(self, patience_s: float) -> None:
        """Wait for the agent's end after `close`; kill its launch command after `patience_s` seconds."""
        end_process(self._process, patience_s)

    def _read(self, lines: TextIO, take: Callable[[str], bool]) -> None:
        """Pass each line to `take`; keep the lines that it does not take, such as a shell's greeting."""
        with contextlib.suppress(OSError, ValueError), lines:
            for line in lines:
                if not take(line) and line.strip():
                    self._errors.append(line.strip()[:300])


class Agents(contextlib.AbstractContextManager["Agents"]):
    """The agents of all machines of a run; a context manager that ends them."""

    def __init__(self, agents: Mapping[str, Agent]) -> None:
        """Manage agents that have been started; the keys of `agents` are the names of their machines."""
        self.agents = dict(agents)

    @classmethod
    def launched(cls, machines: Mapping[str, str], template: str, here: str = "") -> Self:
        """Start an agent on each machine, without waiting for any.

        Args:
            machines: Addresses by the machines' names.
            template: Command that runs a command on a machine, see `launch_command`.
            here: The name of this machine, if it is one of `machines`, else "". Its agent is started
                directly, without `template`.

        Raises BadRun, LaunchError.
        """
        command = command_line.module("ina.run.launch.agent")
        commands = {
            name: command if name == here else launch_command(template, name, address, command)
            for name, address in machines.items()
        }
        agents = cls({})
        try:
            for name, argv in commands.items():
                agents.agents[name] = LaunchedAgent(name, argv)
        except BaseException:
            agents.close()
            raise
        return agents

    def ready(self) -> None:
        """Wait until all agents have sent their first line.

        Raises LaunchError for a machine that does not answer, or has another version of ina.
        """
        deadline = time.monotonic() + START_S
        for name, agent in self.agents.items():
            while agent.here is None:
                if why := agent.ended():
                    raise LaunchError(f"machine {name} has not started: {why}")
                if time.monotonic() > deadline:
                    raise LaunchError(f"machine {name} has not answered within {START_S:g} s")
                time.sleep(0.02)
            if (other := agent.here.get("version")) != version():
                raise LaunchError(
                    f"machine {name} has ina {other}, this one {version()}: install the same version on all"
                )

    def store_port(self, machine: str) -> int:
        """Return the TCP port that a machine's agent has reserved there, for torch's store."""
        here = self.agents[machine].here
        assert here is not None
        return int(here["store"])

    def close(self) -> None:
        """End all agents and their ranks, on all machines, and wait for the agents' end.

        Kill the agents that have not ended after `DONE_S` seconds.
        """
        for agent in self.agents.values():
            agent.close()
        deadline = time.monotonic() + DONE_S
        for agent in self.agents.values():
            agent.wait(max(0.1, deadline - time.monotonic()))

    def __exit__(self, *_: object) -> None:
        self.close()


class RemoteWorkers(RunningWorkers):
    """The ranks of one job, which agents start on several machines."""

    def __init__(
        self,
        agents: Agents,
        machines: Mapping[str, Sequence[int]],
        command: Sequence[str],
        environments: Sequence[Mapping[str, str]],
        rendezvous: EndWatcher,
        on_output: Output,
        inherited: Sequence[str] | None = None,
    ) -> None:
        """Start the ranks.

        Args:
            agents: The machines' agents, ready.
            machines: The ranks of each machine, by the machine's name.
            command: Program and arguments of each rank.
            environments: Variables of each rank; the position is the rank.
            rendezvous: Notified of ranks that have ended.
            on_output: Called with the ranks' output.
            inherited: Patterns of the variables that ranks inherit from their machine's agent; None: all
                (`hostlib.launch.launcher.Workers`).
        """
        super().__init__(len(environments), rendezvous)
        self.lost: dict[str, str] = {}
        """By name of each lost machine, why it is lost; the ranks of lost machines count as failed."""
        self._agents = agents
        self._machines = machines
        self._alive_s = self._looked_s = time.monotonic()
        for name, ranks in machines.items():
            agent = agents.agents[name]
            agent.on_output = lambda number, data, is_error, ranks=ranks: on_output(  # type: ignore[misc]
                ranks[number], data, is_error
            )
            agent.silent_s = 0.0
            order = {
                "command": command,
                "folder": os.getcwd(),  # noqa: PTH109 - as it is called
                "variables": [environments[rank] for rank in ranks],
                "inherited": inherited,
            }
            agent.say({"start": order})

    def kill(self) -> None:
        """End every rank that still runs; do nothing if called before."""
        self._agents.close()
        self._note(self._ended())
        self._note([WorkerExit(rank, 143, "ended with the job") for rank in range(self._size)])

    def _finish(self) -> None:
        deadline = time.monotonic() + DONE_S
        while time.monotonic() < deadline:
            waiting = [agent for agent in self._of_job() if agent.left_running is None and not agent.ended()]
            if not waiting:
                break
            time.sleep(0.02)
        self.left_running = sum(agent.left_running or 0 for agent in self._of_job())

    def _of_job(self) -> list[Agent]:
        return [self._agents.agents[name] for name in self._machines]

    def _ended(self) -> list[WorkerExit]:
        now = time.monotonic()
        passed_s, self._looked_s = min(now - self._looked_s, ALIVE_S), now
        found: list[WorkerExit] = []
        if due := now - self._alive_s > ALIVE_S:
            self._alive_s = now
        for name, ranks in self._machines.items():
            agent = self._agents.agents[name]
            if due:
                agent.say({"alive": True})
            agent.silent_s += passed_s
            lost = agent.ended()
            while agent.exits:
                number, status, reason = agent.exits.popleft()
                found.append(WorkerExit(ranks[number], status, reason))
            if agent.failed:
                lost = agent.failed
            elif agent.silent_s > HANG_S:
                lost = f"it has not answered for {HANG_S:g} s"
            if lost and agent.left_running is None:
                self.lost.setdefault(name, lost)
                found += [WorkerExit(rank, 1, f"is lost with machine {name}: {lost}") for rank in ranks]
        return found
