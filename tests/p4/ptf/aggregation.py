"""The scripts of our own programs as PTF tests: against any target with P4Runtime, over real interfaces.

::

    pip install -e '.[ptf]'
    ina compile tests/p4/aggregation_exclusive/program.p4 --p4info a.p4info.txtpb --device-config a.config
    sudo -E ptf --test-dir tests/p4/ptf --interface 1@veth1 --interface 2@veth3 --interface 9@veth5 \\
        --test-params "address='127.0.0.1:9559';p4info='a.p4info.txtpb';config='a.config'" \\
        aggregation.Exclusive

`config` is what the target loads: the JSON of p4c for BMv2. The ports are those of the script: 1, 2 and 9.
`device_id` (0) and `quiet_s` (0.5), after which nothing more is taken to come of a packet, may be given, too.

A test plays ``tests/p4/aggregation_…/packets.stf`` with the player of ``ina stf``: what each packet is for is
said there.
"""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path

import ptf
from google.protobuf import text_format
from ptf.base_tests import BaseTest
from ptf.testutils import send_packet, test_params_get

from bmv2_topos.testbeds.bmv2.plane import P4RuntimePlane
from controller.p4runtime_shim.client import P4RuntimeClient
from controller.switches.programs import ProgramBundle
from p4src.messages import p4info_pb2
from softswitch.compiler import compile_file
from softswitch.stf import Control, parse_script, play

FOLDER = Path(__file__).parents[1]
QUIET_S = 0.5


class PtfTarget:
    """A `softswitch.stf.run.Target` at the ports of PTF."""

    def __init__(self, test: BaseTest, control: Control, quiet_s: float) -> None:
        self.control = control
        self._test = test
        self._quiet_s = quiet_s
        self._left: dict[int, list[bytes]] = defaultdict(list)

    def send(self, port: int, data: bytes) -> None:
        """Let a packet arrive, and wait until nothing more comes of it."""
        send_packet(self._test, port, data)
        while (found := self._test.dataplane.poll(device_number=0, timeout=self._quiet_s)).packet is not None:
            self._left[found.port].append(bytes(found.packet))

    def left(self) -> Mapping[int, Sequence[bytes]]:
        """Return, by port, all packets that have left so far."""
        return self._left


class ScriptTest(BaseTest):
    """One script; its folder is `name`."""

    name = ""

    def setUp(self) -> None:
        """Forget what came before."""
        super().setUp()
        self.dataplane = ptf.dataplane_instance
        self.dataplane.flush()

    def runTest(self) -> None:
        """Load the program, play the script, compare."""
        if not self.name:
            self.skipTest("the tests are the classes below")
        params = {"device_id": 0, "quiet_s": QUIET_S, **test_params_get()}
        folder = FOLDER / f"aggregation_{self.name}"
        program = compile_file(folder / "program.p4")
        info = text_format.Parse(Path(params["p4info"]).read_text(), p4info_pb2.P4Info())
        bundle = ProgramBundle(self.name, info, Path(params["config"]).read_bytes())
        connected = contextlib.closing(P4RuntimeClient(params["address"], device_id=params["device_id"]))
        with connected as client, client.mastership():
            client.load(bundle.p4info, bundle.device_config)
            plane = P4RuntimePlane(client, program, bundle)
            control = Control(program, plane, plane)
            statements = parse_script((folder / "packets.stf").read_text())
            report = play(statements, PtfTarget(self, control, params["quiet_s"]))
        told = "\n".join(f"line {failure.line}: {failure.message}" for failure in report.failures)
        assert not report.failures, f"{folder.name}/packets.stf\n{told}"


class Exclusive(ScriptTest):
    """p4src/exclusive.p4."""

    name = "exclusive"


class Shared(ScriptTest):
    """p4src/shared.p4."""

    name = "shared"


class Atp(ScriptTest):
    """p4src/atp.p4."""

    name = "atp"
