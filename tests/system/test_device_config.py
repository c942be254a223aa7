"""The device config that docs/p4runtime.md tells people to make is one, for any P4Runtime client."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import grpc
import pytest
from google.protobuf import text_format

from p4src.messages import p4runtime_pb2, p4runtime_pb2_grpc
from softswitch.engine.ports import MemoryPort
from softswitch.engine.switch import Switch
from softswitch.p4runtime import serve
from tests.softswitch.p4runtime.clients import Stream
from tests.system.command import ROOT, ina

PAGE = (ROOT / "docs" / "p4runtime.md").read_text()
(COMMAND,) = re.findall(r"^ina (compile .*--device-config exclusive.config)$", PAGE, flags=re.MULTILINE)


@pytest.mark.parametrize("program", ["exclusive", "p4src/shared.p4 -D LANES=64"])
def test_a_stock_client_loads_what_the_page_makes(program: str, tmp_path: Path) -> None:
    p4info, source = tmp_path / "p4info", tmp_path / "config"
    command = COMMAND.replace("exclusive.p4info.txtpb", str(p4info)).replace("exclusive --lanes 32", program)
    command = command.replace("exclusive.config", str(source))
    made = ina(*shlex.split(command))
    assert made.returncode == 0, made.stderr
    config = p4runtime_pb2.ForwardingPipelineConfig(p4_device_config=source.read_bytes())
    text_format.Parse(p4info.read_text(), config.p4info)
    with Switch({1: MemoryPort()}) as switch:
        service = serve(switch)
        with grpc.insecure_channel(f"127.0.0.1:{service.port}") as channel:
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
        service.close()
    assert loaded.config == config
    assert loaded.config.p4info.tables
