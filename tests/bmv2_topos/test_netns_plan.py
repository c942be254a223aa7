"""What a testbed of namespaces would do, without doing it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bmv2_topos.testbeds import mininet, netns
from bmv2_topos.testbeds.netns import (
    TARGETS,
    BadName,
    MissingRequirement,
    NeedsRoot,
    NoTestbed,
    Program,
    Unsupported,
    bmv2,
    check_here,
    commands_of,
    testbed,
)
from bmv2_topos.testbeds.netns.bmv2 import help_text
from bmv2_topos.testbeds.netns.commands import BMV2, EMBEDDED, Command
from bmv2_topos.testbeds.netns.embedded import switch_options
from bmv2_topos.testbeds.netns.forwarding import entries, next_port
from bmv2_topos.testbeds.netns.names import prefix
from bmv2_topos.testbeds.netns.namespaces import existing, lacks_netem
from bmv2_topos.testbeds.netns.store import State
from bmv2_topos.testbeds.netns.testbed import run_step
from controller import SwitchSession
from controller.errors import Unreachable
from controller.interrupts import exit_on_signals
from controller.switches import names
from controller.switches.programs import P4C
from controller.vocabulary import Link, Server, Switch, Topology, named, tree
from ina.run.switches.testbeds import hosts_for, opened
from softswitch import CompileError, PipelineError
from tests.programs import P4SRC


def test_every_link_joins_the_interfaces_of_its_two_namespaces() -> None:
    topology = named("leaf-spine:2x2x1")
    text = [command.text for command in commands_of("lab", topology, Program())]
    assert text[0] == "ip netns add ina.lab.s1"
    (made,) = (line for line in text if " type veth " in line)
    lines = made.splitlines()
    assert (lines[0], lines[-1], len(lines) - 2) == ("ip -batch - <<EOF", "EOF", len(topology.links))
    assert (
        lines.count("link add name s1-eth1 netns ina.lab.s1 type veth peer name s3-eth1 netns ina.lab.s3")
        == 1
    )
    (host,) = (line for line in text if line.startswith("ip -n ina.lab.h2 "))
    assert "address add 10.0.0.2/16 dev h2-eth0" in host
    assert "neighbour replace 10.0.255.1 lladdr 02:00:00:00:ff:01 dev h2-eth0 nud permanent" in host


def test_hosts_hold_their_rate_and_switches_all_the_rest() -> None:
    link = Link("a", "b", rate_bps=1e9, delay_s=1e-3, queue_packets=100, loss=0.01)
    topology = tree([1, 1], link=link)
    rates = [
        " ".join(command.argv)
        for command in commands_of("lab", topology, Program())
        if command.argv[0] == "tc"
    ]
    assert len(rates) == 2
    assert "dev h1-eth0 parent 1: classid 1:1 htb rate 1000000000bit" in rates[1]
    options = switch_options(topology, "s2", Program(seed=7), Path("/x"))
    out = "tx.loss=0.01,tx.delay=0.001,tx.rate=1000000000.0,tx.queue=100"
    assert [options[at + 1] for at, option in enumerate(options) if option == "--impair"] == [
        f"1:{out}",  # up: the other switch answers for what comes down
        f"2:rx.loss=0.01,rx.delay=0.001,{out}",
    ]
    assert options[options.index("--seed") + 1] == "8"


def test_a_free_link_has_no_faults() -> None:
    topology = tree([2], link=Link("a", "b", rate_bps=0))
    assert not any(command.argv[0] == "tc" for command in commands_of("lab", topology, Program()))
    assert "--impair" not in switch_options(topology, "s1", Program(), Path("/x"))


@pytest.mark.parametrize("name", ["fat-tree:4", "leaf-spine", "dumbbell"])
def test_every_host_reaches_every_other_from_everywhere(name: str) -> None:
    topology = named(name)
    for host in topology.servers:
        for start in topology.ports:
            node, hops = start, 0
            while node != host.name:
                assert hops <= len(topology.ports)
                node, hops = topology.ports[node][next_port(topology, node, host.name)].other(node), hops + 1
        rows = [row for row in entries(topology, topology.root) if row.table == names.BRIDGE]
        assert len(rows) == len(topology.servers)


@pytest.mark.parametrize("name", ["", "a.b", "-x", "a/b", "x" * 33])
def test_names_of_testbeds_are_short_and_plain(name: str) -> None:
    with pytest.raises(BadName, match="want 1 to 32 letters"):
        commands_of(name, named("single-switch"), Program())


@pytest.mark.parametrize(
    ("host", "message"),
    [
        (
            "a-long-host-name",
            "its interface a-long-host-name-eth0 has 21 characters, and Linux takes 15; want a name",
        ),
        ("a b", "want letters, digits"),
        ("..", "want letters, digits"),
    ],
)
def test_names_of_nodes_have_room_in_names_of_interfaces(host: str, message: str) -> None:
    topology = Topology((Switch("s1"),), (Server(host),), (Link(host, "s1"),))
    with pytest.raises(BadName, match=message):
        commands_of("lab", topology, Program())


ON_BMV2 = Program(lanes=32, target=BMV2)


def tools(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).write_text("#!/bin/sh\necho --notifications-addr\n")
        (folder / name).chmod(0o755)


def test_bmv2_gets_whole_frames_a_private_p4runtime_and_rates(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools(tmp_path, "simple_switch_grpc", "p4c-bm2-ss")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("INA_TESTBEDS", "/x")
    help_text.cache_clear()
    topology = tree([1, 1], link=Link("a", "b", rate_bps=1e9, queue_packets=100))
    text = [command.text for command in commands_of("lab", topology, ON_BMV2)]
    help_text.cache_clear()
    assert text[0].startswith(f"{tmp_path}/p4c-bm2-ss -o /x/lab/exclusive.json --arch v1model")
    (offloads,) = (line for line in text if "netns.offloads" in line)
    assert {"ina.lab.h1/h1-eth0", "ina.lab.s2/s2-eth2"} <= set(offloads.split())
    assert "tc -n ina.lab.s2 qdisc add dev s2-eth2 parent 1:1 handle 2: pfifo limit 100" in text
    assert text[-1] == (
        "ip netns exec ina.lab.s2 simple_switch_grpc --no-p4 --device-id 0 -i 1@s2-eth1 -i 2@s2-eth2 -L off"
        " --notifications-addr ipc:///x/lab/s2.sock.nn -- --grpc-server-addr unix:/x/lab/s2.sock"
    )


def test_netem_delays_and_loses_at_both_ends_behind_their_rates_what_bmv2_cannot() -> None:
    """It counts what it delays, so that its limit leaves room for that beside the queue."""
    link = Link("a", "b", delay_s=1e-3, loss=0.01, duplicate=0.001, queue_packets=100)
    netem = "netem limit 100100 delay 1000us loss 1% duplicate 0.1%"
    for rate_bps, place in ((0.0, "root handle 2:"), (1e9, "parent 1:1 handle 2:")):
        topology = tree([1], link=replace(link, rate_bps=rate_bps))
        text = [command.text for command in commands_of("lab", topology, ON_BMV2)]
        for node, end in (("h1", "h1-eth0"), ("s1", "s1-eth1")):
            queue = f"tc -n ina.lab.{node} qdisc add dev {end} {place} {netem}"
            assert queue in text
            before = [line for line in text[: text.index(queue)] if f"dev {end} " in line and "tc -n" in line]
            assert len(before) == (2 if rate_bps else 0)  # HTB and its class, which it hangs on


def test_reordering_is_refused_on_bmv2() -> None:
    with pytest.raises(Unsupported, match=r"link h1 - s1: reorder = 0.1: neither BMv2 nor the kernel"):
        commands_of("lab", tree([1], link=Link("a", "b", reorder=0.1)), ON_BMV2)


def test_a_kernel_without_netem_is_found_out_by_trying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever this kernel has: tc says it, and the refusal quotes tc."""
    tools(tmp_path, "simple_switch_grpc", "p4c", "ip")
    (tmp_path / "tc").write_text("#!/bin/sh\necho Specified qdisc kind is unknown. >&2\nexit 2\n")
    (tmp_path / "tc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    slow = tree([1], link=Link("a", "b", delay_s=1e-3))
    lacks_netem.cache_clear()
    with pytest.raises(
        MissingRequirement,
        match=r"link h1 - s1: delay 1000us needs netem, .* no netem \(tc -n: Specified qdisc",
    ):
        TARGETS[BMV2].check_here(slow, ON_BMV2)
    (tmp_path / "tc").write_text("#!/bin/sh\n")
    lacks_netem.cache_clear()
    TARGETS[BMV2].check_here(slow, ON_BMV2)
    lacks_netem.cache_clear()


@pytest.mark.parametrize("runner", [netns, mininet], ids=lambda runner: runner.__name__.rpartition(".")[2])
def test_what_would_be_run_is_told_where_nothing_of_it_is_installed(
    runner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    help_text.cache_clear()
    text = [command.text for command in runner.commands_of("lab", tree([1]), ON_BMV2)]
    help_text.cache_clear()
    assert text[0].startswith("p4c-bm2-ss -o ")
    assert sum(" simple_switch_grpc --no-p4 " in line for line in text) == 1
    neighbour = "neighbour replace 10.0.255.1 lladdr 02:00:00:00:ff:01 dev h1-eth0 nud permanent"
    assert any(neighbour in line for line in text)


def test_mininet_is_held_by_a_process_whose_nodes_get_the_names_of_namespaces() -> None:
    text = [
        command.text
        for command in mininet.commands_of("lab", tree([1], link=Link("a", "b", rate_bps=1e9)), Program())
    ]
    assert text[0] == "ip netns add ina.lab.mininet"
    assert text[1].startswith("ip netns exec ina.lab.mininet ")
    assert text[1].endswith(" bmv2_topos.testbeds.mininet.hold lab")
    assert text[2].startswith("mnexec -a PID-of-s1 ")
    assert text[3:5] == [f"ip netns attach ina.lab.{node} PID-of-{node}" for node in ("s1", "h1")]
    assert text[-1].startswith("tc -n ina.lab.h1 class add dev h1-eth0 ")


def test_missing_tools_are_named_with_where_they_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    target = TARGETS[BMV2]
    with pytest.raises(
        MissingRequirement,
        match=r"simple_switch_grpc on PATH .*behavioral-model.* and p4c-bm2-ss or p4c on .*opensuse.org",
    ):
        target.check_here(tree([1]), ON_BMV2)
    tools(tmp_path, "simple_switch_grpc")
    with pytest.raises(
        MissingRequirement, match=r"the target bmv2 needs p4c-bm2-ss or p4c on PATH .*package p4lang-p4c"
    ):
        target.check_here(tree([1]), ON_BMV2)
    for tool in P4C:
        tools(tmp_path, tool)
        target.check_here(tree([1]), ON_BMV2)  # either is enough
        (tmp_path / tool).unlink()
    with pytest.raises(
        MissingRequirement,
        match=r"no 'ip' command on PATH: install iproute2 .* virtual and loopback need no namespaces",
    ):
        check_here()


def test_a_program_of_ones_own_is_compiled_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also that of one switch alone; whoever makes the testbed asks its target."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", "nocc")
    (tmp_path / "broken.p4").write_text("parser")

    def of_one_switch(own: Path) -> Topology:
        star = tree([1])
        return replace(star, switches=tuple(replace(each, program=str(own)) for each in star.switches))

    for topology, program in (
        (tree([1]), Program(str(tmp_path / "broken.p4"))),
        (of_one_switch(tmp_path / "broken.p4"), Program()),
    ):
        for runner in (netns, mininet):
            with pytest.raises(CompileError, match="broken"):
                runner.commands_of("lab", topology, program)
    right = of_one_switch(P4SRC / "exclusive.p4")
    TARGETS[EMBEDDED].check(right, Program())
    with pytest.raises(PipelineError, match="no C compiler: nocc is not on PATH"):
        TARGETS[EMBEDDED].check_here(right, Program())
    TARGETS[EMBEDDED].check_here(tree([1]), Program())  # each switch compiles one of p4src by itself


def test_without_root_what_goes_on_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(NeedsRoot, match=r"need root \(the runners virtual and loopback need no namespaces\)"):
        check_here()


def test_jobs_that_start_at_once_each_find_the_hosts_that_are_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INA_TESTBEDS", str(tmp_path))
    (tmp_path / "lab").mkdir()
    topology = tree([4])
    state = State("lab", "netns", topology, Program(), switches=dict.fromkeys(topology.ports, os.getpid()))

    def reserve(_: int) -> list[str]:
        with hosts_for(state, 2) as hosts:
            return hosts

    with ThreadPoolExecutor(2) as pool:
        assert all(len(hosts) == 2 for hosts in pool.map(reserve, range(400)))


def test_a_switch_that_ends_while_it_is_waited_for_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was killed a moment ago still runs, and answers no more."""
    monkeypatch.setenv("INA_TESTBEDS", str(tmp_path))
    (tmp_path / "lab").mkdir()
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:

        def connect(address: str) -> SwitchSession:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()
            raise Unreachable("no P4Runtime server answers")

        monkeypatch.setattr(testbed, "connect", connect)
        topology = named("single-switch:1")
        state = State(
            "lab", "netns", topology, Program(), switches=dict.fromkeys(topology.ports, process.pid)
        )
        with pytest.raises(NoTestbed, match=r"switch s1 \(process \d+\) has ended; .* ina topo down lab"):
            opened(state).__enter__()


def test_a_step_that_is_interrupted_as_it_starts_has_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was left running, and made a namespace after all others had been taken away."""

    class Interrupted(subprocess.Popen[str]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self.pid)
            os.kill(os.getpid(), signal.SIGINT)
            end.wait(0.2)  # another thread may take it, which is not at once

    started: list[int] = []
    end = threading.Event()
    monkeypatch.setattr(subprocess, "Popen", Interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    other = threading.Thread(target=end.wait)  # it would take a signal that this one blocks
    other.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_step(Command(("sleep", "600")))
    finally:
        signal.signal(signal.SIGINT, before)
        end.set()
        other.join()
    with pytest.raises(ProcessLookupError):
        os.kill(started[0], 0)


# ---------------------------------------------------------------------------
# Testbeds of network namespaces that stand for a block, and what signals leave of them.


STANDS = """
import sys
from bmv2_topos.testbeds import netns
from controller.vocabulary.catalog import star
with netns.temporary(sys.argv[1], star(1), netns.Program(lanes=32)):
    print("up", flush=True)
    sys.stdin.read()
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_takes_down_a_testbed_that_stands_for_a_block(number: signal.Signals) -> None:
    """Benchmarks left their namespaces and switches when they were ended by SIGTERM."""
    name = f"ended-{os.getpid()}"
    program = [sys.executable, "-c", STANDS, name]
    with subprocess.Popen(
        program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        assert existing(prefix(name))
        process.send_signal(number)
        process.communicate(timeout=60)
    assert process.returncode in (128 + number, -number)
    assert existing(prefix(name)) == []


def test_handlers_of_others_stay_and_are_there_again_after_the_block() -> None:
    own = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with pytest.raises(SystemExit) as ended:
            _end_inside()
        assert ended.value.code == 128 + signal.SIGTERM
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    finally:
        signal.signal(signal.SIGHUP, own)


def _end_inside() -> None:
    with exit_on_signals():
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
        signal.raise_signal(signal.SIGTERM)


def test_a_path_at_which_bmv2_cannot_listen_is_refused() -> None:
    """It ran without its socket, and a testbed waited for that without end."""
    assert bmv2.switch_argv({}, Path("/".ljust(bmv2.SOCKET_PATH_BYTES, "a")))
    with pytest.raises(Unsupported, match="is too long for the path of BMv2's socket"):
        bmv2.switch_argv({}, Path("/".ljust(bmv2.SOCKET_PATH_BYTES + 1, "a")))
