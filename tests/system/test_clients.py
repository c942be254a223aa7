"""The programs of the pages by which others talk to a switch, and to a controller that serves jobs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import grpc
import pytest
from google.protobuf import text_format

from p4src.messages import p4runtime_pb2, p4runtime_pb2_grpc
from softswitch.engine.ports import MemoryPort
from softswitch.engine.switch import Switch
from softswitch.p4runtime import serve
from tests.ina.run.bed import serving
from tests.softswitch.p4runtime.clients import Stream
from tests.system.attached import open_switch
from tests.system.command import ROOT, good

# --------------------------------------------------------------------- the device config that docs/p4


PAGE = (ROOT / "docs" / "reference" / "p4runtime-clients.md").read_text()
(COMMAND,) = re.findall(r"^ina (compile .*--device-config exclusive.config)$", PAGE, flags=re.MULTILINE)


@pytest.mark.parametrize("program", ["exclusive --lanes 32", "p4src/shared.p4 -D LANES=64"])
def test_a_stock_client_loads_what_the_page_makes(program: str, tmp_path: Path) -> None:
    p4info, source = tmp_path / "p4info", tmp_path / "config"
    command = COMMAND.replace("exclusive.p4info.txtpb", str(p4info)).replace("exclusive --lanes 32", program)
    command = command.replace("exclusive.config", str(source))
    good(*shlex.split(command))
    config = p4runtime_pb2.ForwardingPipelineConfig(p4_device_config=source.read_bytes())
    text_format.Parse(p4info.read_text(), config.p4info)
    with (
        Switch({1: MemoryPort()}) as switch,
        closing(serve(switch)) as service,
        grpc.insecure_channel(f"127.0.0.1:{service.port}") as channel,
    ):
        stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)
        stream = Stream(stub)
        assert stream.arbitrate(1).status.code == 0
        stub.SetForwardingPipelineConfig(
            p4runtime_pb2.SetForwardingPipelineConfigRequest(
                election_id=p4runtime_pb2.Uint128(low=1),
                action=p4runtime_pb2.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT,
                config=config,
            )
        )
        loaded = stub.GetForwardingPipelineConfig(p4runtime_pb2.GetForwardingPipelineConfigRequest())
        stream.end()
    assert loaded.config == config
    assert loaded.config.p4info.tables


# --------------------------------------------------------------------- the programs of the pages by w


def program(page: str, address: str, ours: str) -> str:
    """Return the only program of a page, with an address of ours."""
    (found,) = (
        block.partition("```")[0]
        for block in (ROOT / "docs" / page).read_text().split("```python\n")[1:]
        if address in block.partition("```")[0]
    )
    return found.replace(f'"{address}"', repr(ours))


def run(text: str, folder: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", text], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_a_program_controls_a_switch(tmp_path: Path) -> None:
    with open_switch("--program", "exclusive", "--lanes", 32) as switch:
        address = switch.address.removeprefix("grpc://")
        said = run(program("reference/p4runtime-clients.md", "127.0.0.1:9559", address), tmp_path)
    first, second, *counted = said
    assert first.startswith("job ")
    assert first.endswith(" has 64 of 8192 slots")
    assert second == "0 packets so far"
    assert counted == []


def test_a_program_sends_gradients_by_scapy(tmp_path: Path) -> None:
    pytest.importorskip("scapy")
    with open_switch("--program", "exclusive", "--lanes", 32) as switch:
        address = switch.address.removeprefix("grpc://")
        text = program("guides/captures.md", "127.0.0.1:9559", address)
        _, _, _, at, _, hosts = switch.options
        for ours, theirs in ((at, "27000"), (hosts, "28000")):
            text = text.replace(theirs, ours.rpartition(":")[2])
        assert run(text, tmp_path) == ["result [10, 12, 14, 16]"] * 2


def test_a_program_talks_to_a_controller(tmp_path: Path) -> None:
    with serving(tmp_path) as bed:
        text = program("guides/controller-api.md", "http://127.0.0.1:9580", bed.url)
        first, *servers = run(text, tmp_path)
        assert first.startswith("running - ")
        assert [line.split()[1:4] for line in servers].count(["2", "of", "2"]) == 1
        assert len(servers) == 5
        refused = text.replace('"workers": 2', '"workers": 200').replace("b-1", "b-2")
        done = subprocess.run([sys.executable, "-c", refused], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (1, "")
        assert "200" in done.stderr
        assert "Traceback" not in done.stderr
