"""A switch that takes programs for one architecture only."""

import pytest

from p4src.messages import p4runtime_pb2 as p4
from softswitch.compiler import p4info
from softswitch.engine.cache import compile_once
from softswitch.engine.pipeline import PipelineError
from softswitch.engine.ports import MemoryPort
from softswitch.engine.switch import Switch
from softswitch.p4runtime.errors import InvalidArgument
from softswitch.p4runtime.state import Device, Loading

from .programs import preprocessed


@pytest.mark.parametrize("architecture", ["tna", "t2na"])
def test_programs_for_other_architectures_are_refused(architecture: str) -> None:
    source = preprocessed(architecture=architecture)
    other = {"tna": "t2na", "t2na": "tna"}[architecture]
    config = p4.ForwardingPipelineConfig(
        p4info=p4info(compile_once(source)), p4_device_config=source.encode()
    )
    request = p4.SetForwardingPipelineConfigRequest
    message = f"it is for architecture {architecture}, and the switch runs {other} only"
    with Switch({1: MemoryPort()}) as switch:
        device = Device(switch, Loading(backend="interpreter", architecture=other))
        with pytest.raises(PipelineError, match=message):
            device.preload(source)
        with pytest.raises(InvalidArgument, match=message):
            device.configure(request.VERIFY_AND_COMMIT, config)
        assert device.running is None
        for wanted in (architecture, None):
            device = Device(switch, Loading(backend="interpreter", architecture=wanted))
            device.configure(request.VERIFY_AND_COMMIT, config)
            assert device.running is not None
