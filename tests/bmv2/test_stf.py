"""Scripts of tests/p4 on BMv2: they pass there, as on the embedded switch."""

import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from bmv2_topos.testbeds.bmv2 import run_on_bmv2
from bmv2_topos.testbeds.bmv2.files import port_command
from bmv2_topos.testbeds.bmv2.stf import network_of_its_own, switch_command
from bmv2_topos.testbeds.netns.bmv2 import missing
from bmv2_topos.testbeds.netns.errors import MissingRequirement
from softswitch.compiler import compile_file, compile_source
from softswitch.engine.ports import MAX_PORT
from softswitch.stf import ScriptError, Statement, parse_script, ports_of
from softswitch.stf.script import ScriptCommand
from tests.softswitch.lowering import source

FOLDER = Path(__file__).parents[1] / "p4"
here = pytest.mark.skipif(bool(missing()), reason=f"needs {missing()}")


def script(name: str) -> Sequence[Statement]:
    """The script of a feature without registers, which BMv2 does not show over P4Runtime."""
    statements = parse_script((FOLDER / name / "packets.stf").read_text())
    return [
        each
        for each in statements
        if not (isinstance(each, ScriptCommand) and each.command.startswith("register"))
    ]


@pytest.mark.bmv2
@here
@pytest.mark.parametrize(
    "name", ["aggregation_atp", "aggregation_exclusive", "aggregation_shared", "basic_tables", "meters"]
)
def test_scripts_pass_on_bmv2(name: str) -> None:
    path = FOLDER / name / "program.p4"
    report = run_on_bmv2(path, compile_file(path), script(name))
    assert report.packets
    assert report.failures == []


@pytest.mark.bmv2
@here
def test_what_is_not_as_the_script_says_is_told(write_file: Callable[[str, str], Path]) -> None:
    path = write_file("program.p4", source("standard_metadata.egress_spec = 2;"))
    text = "packet 1 01020304\nexpect 2 01020305\nexpect 3 00\npacket 2 05060708\n"
    report = run_on_bmv2(path, compile_file(path), parse_script(text))
    assert [(failure.line, failure.message.partition(":")[0]) for failure in report.failures] == [
        (2, "port 2"),
        (3, "a packet is missing at port 3"),
        (0, "unexpected packet at port 2, 05060708"),
    ]


@pytest.mark.bmv2
@here
def test_registers_are_refused_by_line(write_file: Callable[[str, str], Path]) -> None:
    path = write_file("program.p4", source("r.write(0, 1);", locals="register<bit<8>>(4) r;"))
    with pytest.raises(ScriptError, match="BMv2 has no registers over P4Runtime") as caught:
        run_on_bmv2(path, compile_file(path), parse_script("packet 0 00\nregister_read r 0\n"))
    assert caught.value.line == 2


def test_without_the_tools_it_says_where_they_come_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(
        MissingRequirement, match=r"simple_switch_grpc on PATH \(https://github.com/p4lang/behavioral"
    ):
        run_on_bmv2(Path("t.p4"), compile_source(source()), [])


def test_each_switch_has_addresses_of_its_own(tmp_path: Path) -> None:
    """Four at once: nothing that one listens at is another's. Thrift's port is the kernel's choice."""
    known = "--thrift-port arg  --notifications-addr arg"
    commands = [switch_command(tmp_path / str(number) / "p4runtime", known) for number in range(4)]
    addresses = [word for before, after in commands for word in (*before, *after) if ":" in word]
    assert len(set(addresses)) == len(addresses) == 8
    for before, _ in commands:
        assert before[before.index("--thrift-port") + 1] == "0"


@pytest.mark.skipif(not network_of_its_own(), reason="network namespaces are not allowed here")
def test_nobody_reaches_what_a_switch_listens_at() -> None:
    """Thrift was at 0.0.0.0: whoever reached the machine could control the switch."""
    listens = (
        "import socket, sys; s = socket.create_server(('0.0.0.0', 0)); print(s.getsockname()[1]); input()"
    )
    with subprocess.Popen(
        [*network_of_its_own(), sys.executable, "-c", listens], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        port = int(process.stdout.readline())
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port))
        process.communicate(b"\n")
    assert process.returncode == 0


def test_a_build_without_thrift_is_not_asked_for_it(tmp_path: Path) -> None:
    before, after = switch_command(tmp_path / "p4runtime", "--use-files arg")
    assert before == ["simple_switch_grpc", "--no-p4", "--use-files", "0", "-L", "off"]
    assert after == ["--", "--grpc-server-addr", f"unix:{tmp_path}/p4runtime"]


def test_no_packet_has_bmv2_open_every_port() -> None:
    statements = parse_script("packet 1 00\nno_packet")
    assert ports_of(statements) == list(range(MAX_PORT + 1))
    command = port_command(["limit"], {port: str(port) for port in ports_of(statements)}, ["end"])
    assert command.count("-i") == MAX_PORT + 1
    assert command[-3:] == ["-i", f"{MAX_PORT}@{MAX_PORT}", "end"]


def test_a_switch_may_open_two_files_for_each_port() -> None:
    ports = {port: str(port) for port in range(MAX_PORT + 1)}
    command = port_command(["sh", "-c", "ulimit -n"], ports, [])
    limited = ["sh", "-c", 'ulimit -S -n 512; exec "$@"', "sh", *command]
    limit = subprocess.run(limited, capture_output=True, text=True, check=True).stdout.strip()
    assert int(limit) >= 2 * len(ports)
