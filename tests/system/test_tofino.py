"""Jobs on the programs for Tofino: exact sums under loss, in trees, and one job after the other."""

import re
from contextlib import closing

import pytest

from benchmarks.p4.switchml.client import Client
from tests.system.attached import open_switch
from tests.system.command import good, here, refused, worker

TNA = "p4src/tna/{}.p4"
SUMS = worker("exact.py", "--rounds", 2, 1000, 5000)


@pytest.mark.parametrize(
    ("program", "where"),
    [
        ("exclusive", ("-np", 3, "--loss", 0.02)),
        ("shared", ("-np", 3, "--loss", 0.002)),
        ("exclusive", ("--tree", "2x2", "--link-loss", 0.01)),
        ("shared", ("--tree", "2x2")),
    ],
)
def test_sums_are_exact(program: str, where: tuple[object, ...]) -> None:
    done = good("run", *where, "--lanes", 32, "--program", TNA.format(program), "--timeout", 60, *SUMS)
    assert done.stdout.count("finished") == (4 if "--tree" in where else 3)
    assert re.search(r"in the switch: completed +│ +[1-9]", done.stdout)


@pytest.mark.parametrize("program", ["exclusive", "shared"])
def test_a_job_gets_slots_as_new_after_another(program: str) -> None:
    with open_switch("--program", TNA.format(program), "--lanes", 32) as attached:
        for _ in range(2):  # the second one's packets are older than what the first one left in the slots
            done = good("run", "-np", 2, *attached.options, "--timeout", 60, *SUMS)
            assert done.stdout.count("finished") == 2


def test_controllers_for_tofino_reach_a_switch_by_bf_runtime() -> None:
    program = ("--program", TNA.format("exclusive"), "--lanes", 32, "--arch", "tna")
    with (
        open_switch(*program, "--bfrt", "127.0.0.1:0") as attached,
        closing(Client(f"127.0.0.1:{attached.switch.ready()['bfrt_port']}", "exclusive")) as client,
    ):
        ports = [data["$DEV_PORT"] for _, data, _ in client.tables["$PORT_HDL_INFO"].entries()]
        assert ports == [1, 2, 3, 4, 5, 6]
        good("run", "-np", 2, *attached.options, "--timeout", 60, *SUMS)
        statistics = client.tables["$PORT_STAT"].entries({"$DEV_PORT": 1})
        assert statistics[0][1]["$FramesReceivedOK"] != 0


def test_a_program_for_another_architecture_is_refused() -> None:
    options = ("--program", TNA.format("exclusive"), "--lanes", 32, "--port", "1=memory")
    said = refused("switch", *options, "--arch", "v1model", status=1)
    assert "the program is for architecture tna; this switch runs v1model only" in said
    assert here("switch", *options, "--bfrt", "nowhere").returncode == 2
