"""The switch as a process of its own: says when it is ready, and ends when it is told to.

A process that runs until it is told to stop hears it, whenever that is.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import pytest

from p4src.messages import p4runtime_pb2 as p4
from p4src.messages import p4runtime_pb2_grpc
from softswitch.daemon import SIGNALS, StopSignal
from tests.sockets import bound_udp

ENTRIES_P4 = Path(__file__).parent / "p4runtime" / "entries.p4"

SCRIPT = """
import sys
from pathlib import Path
from softswitch.daemon import SwitchSettings, run_switch
from softswitch.engine.ports import parse_port
run_switch(
    SwitchSettings(
        ports={0: parse_port("udp:0"), 1: parse_port("udp:0"), 2: parse_port("memory")},
        program=Path(sys.argv[1]) if len(sys.argv) > 1 else None,
        ready=sys.stdout,
        until_eof=True,
    )
)
"""


class Process:
    def __init__(self, *arguments: str, script: str = SCRIPT) -> None:
        self.popen = subprocess.Popen(
            [sys.executable, "-c", script, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ready = self.hear()

    def hear(self) -> Any:
        return json.loads(self.popen.stdout.readline())

    def ask(self, command: str) -> Any:
        print(command, file=self.popen.stdin, flush=True)
        return self.hear()

    def end(self) -> int:
        self.popen.communicate()
        return self.popen.returncode


WATCHED = """
import sys
from pathlib import Path
from softswitch.daemon import SwitchSettings, run_switch
from softswitch.engine.ports import parse_port
run_switch(
    SwitchSettings(
        ports={1: parse_port("udp:0")},
        program=Path(sys.argv[1]),
        backend="interpreter",
        ready=sys.stdout,
        until_eof=True,
        watch=True,
        metrics_port=0,
    )
)
"""


def replace(program: Path, text: str) -> None:
    """Write a file anew at once: who looks sees the old one or the new one, and none that is empty yet."""
    draft = program.with_suffix(".draft")
    draft.write_text(text)
    draft.replace(program)


def test_a_program_that_is_watched_is_loaded_again_and_counters_are_served(
    write_file: Callable[[str, str], Path],
) -> None:
    program = write_file("p.p4", ENTRIES_P4.read_text())
    process = Process(str(program), script=WATCHED)
    ready = process.ready
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender:
        sender.sendto(bytes(64), ("127.0.0.1", ready["udp_ports"]["1"]))

    def metrics() -> str:
        with urlopen(f"http://127.0.0.1:{ready['metrics_port']}/metrics") as answer:
            text: str = answer.read().decode()
        return text

    text = metrics()
    kinds, meanings = (
        re.findall(r"^# TYPE (\w+) counter$", text, re.M),
        re.findall(r"^# HELP (\w+) .+\.$", text, re.M),
    )
    assert kinds == meanings
    assert "ina_switch_program_loads_total 1\n" in text
    assert "# TYPE ina_switch_port_rx_packets_total counter" in text
    assert 'ina_switch_port_rx_packets_total{port="1"} ' in text
    replace(program, "nonsense")
    assert "the previous program keeps running" in process.hear()["error"]
    replace(program, ENTRIES_P4.read_text() + "// changed\n")
    assert process.hear() == {"reloaded": "p"}
    assert "ina_switch_program_loads_total 2\n" in metrics()
    assert process.end() == 0


@pytest.fixture
def process() -> Iterator[Process]:
    process = Process(str(ENTRIES_P4))
    yield process
    process.end()


def test_it_says_where_it_listens(process: Process) -> None:
    assert process.ready["program"] == "entries"
    assert process.ready["device_id"] == 0
    assert sorted(process.ready["udp_ports"]) == ["0", "1"]
    with grpc.insecure_channel(f"127.0.0.1:{process.ready['grpc_port']}") as channel:
        stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        response = stub.GetForwardingPipelineConfig(p4.GetForwardingPipelineConfigRequest())
        assert "MyIngress.exact_table" in [t.preamble.name for t in response.config.p4info.tables]


def test_it_answers_what_it_is_asked(process: Process) -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as peer:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
            for sender in (peer, stranger, stranger):
                sender.sendto(bytes(64), ("127.0.0.1", process.ready["udp_ports"]["1"]))
        while (ports := process.ask('{"statistics": true}')["statistics"])["1"]["rx_stranger"] < 2:
            pass
    assert sorted(ports) == ["0", "1", "2"]
    assert (ports["0"]["rx_stranger"], ports["1"]["rx_stranger"], ports["1"]["rx_packets"]) == (0, 2, 1)


def test_it_opens_further_ports(process: Process) -> None:
    with bound_udp() as peer:
        opened = process.ask(json.dumps({"port": f"7=udp:0:{peer.getsockname()[1]}", "impair": "loss=0"}))
        assert sorted(opened["udp_ports"]) == ["0", "1", "7"]
        peer.sendto(bytes(64), ("127.0.0.1", opened["udp_ports"]["7"]))
        while process.ask('{"statistics": true}')["statistics"]["7"]["rx_packets"] < 1:
            pass
    for text, reason in (
        ("7=shm", "port 7: exists already"),
        ("7", "must be NUMBER=KIND, such as 9=shm"),
        ("511=shm", "port number 511: want 0..510"),
        ("8=nonsense", "nonsense"),
    ):
        assert reason in process.ask(json.dumps({"port": text}))["error"]
    assert "loss" in process.ask(json.dumps({"port": "8=shm", "impair": "loss=2"}))["error"]
    assert sorted(process.ask('{"statistics": true}')["statistics"]) == ["0", "1", "2", "7"]


@pytest.mark.parametrize(
    "command", ["", "statistics", "{}", '{"statistics": 1, "x": 2}', '["statistics"]', "[" * 100_000, "\x00"]
)
def test_what_it_does_not_understand_is_an_error_and_no_more(process: Process, command: str) -> None:
    assert "command" in process.ask(command)["error"]
    assert "statistics" in process.ask('{"statistics": true}')


def test_it_ends_with_its_input(process: Process) -> None:
    assert process.end() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_at_a_signal(process: Process, number: signal.Signals) -> None:
    process.popen.send_signal(number)
    assert process.popen.wait() == 0


def test_it_needs_no_program() -> None:
    process = Process()
    assert process.ready["program"] is None
    assert process.end() == 0


def test_it_ends_at_a_signal_after_bytes_that_are_no_messages(process: Process) -> None:
    with grpc.insecure_channel(process.ready["p4runtime"]) as channel:
        stream = channel.stream_stream("/p4.v1.P4Runtime/StreamChannel")
        for _ in range(20):
            with pytest.raises(grpc.RpcError):
                next(stream(iter([b"\xff\xff\xff"]), timeout=120))
    process.popen.send_signal(signal.SIGTERM)
    assert process.popen.wait(timeout=60) == 0


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_that_does_not_interrupt_the_main_thread_ends_its_wait(number: signal.Signals) -> None:
    """As one that comes when it is about to wait: a switch that had just begun did not end at SIGTERM."""
    before = signal.getsignal(number)
    with StopSignal() as stop:
        elsewhere = threading.Timer(0.05, lambda: signal.pthread_kill(threading.get_ident(), number))
        elsewhere.start()
        stop.wait_in_main_thread()
        assert stop.wait(0)
    elsewhere.join()
    assert signal.getsignal(number) is before
    assert signal.set_wakeup_fd(-1) == -1


def test_a_signal_that_comes_before_the_wait_ends_it() -> None:
    with StopSignal() as stop:
        signal.raise_signal(signal.SIGTERM)
        stop.wait_in_main_thread()


def test_other_signals_do_not_end_it() -> None:
    heard = []
    before = signal.signal(signal.SIGUSR1, lambda *_: heard.append(1))
    try:
        with StopSignal() as stop:
            signal.raise_signal(signal.SIGUSR1)
            threading.Timer(0.05, stop.set).start()
            stop.wait_in_main_thread()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert heard == [1]


def test_threads_wait_for_it_too_and_it_may_be_set_after_its_end() -> None:
    with StopSignal() as stop:
        assert not stop.wait(0)
        stop.set()
        assert stop.wait(0)
        stop.wait_in_main_thread()
    stop.set()
