"""Where ranks of srun meet; with a real Slurm: tests/system/test_every_launcher.py."""

from __future__ import annotations

import pytest

from hostlib.errors import ConfigError
from hostlib.launch.launched_rank import PORTS, first_node, slurm_meeting


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("h1", "h1"),
        ("h1,h3", "h1"),
        ("h[1-4]", "h1"),
        ("rack1-n[03-05,9],n7", "rack1-n03"),
        ("r[2-3]n[4-5]", "r2n4"),
        ("g5,h[1,2]", "g5"),
    ],
)
def test_the_first_node_of_a_list(nodes: str, first: str) -> None:
    assert first_node(nodes) == first


def test_steps_of_one_job_meet_at_different_ports() -> None:
    step = {"SLURM_JOB_ID": "70000", "SLURM_STEP_NODELIST": "10.1.0.1,h2"}
    meetings = [slurm_meeting({**step, "SLURM_STEP_ID": str(number)}) for number in range(8)]
    assert {host for host, _ in meetings} == {"10.1.0.1"}
    assert len({port for _, port in meetings}) == 8
    assert all(port in PORTS for _, port in meetings)


def test_a_node_whose_address_nobody_knows_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    step = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_STEP_NODELIST": "localhost,h2"}
    with pytest.raises(
        ConfigError, match=r"the address of the first node, 'localhost', is not known: .*INA_MEETING"
    ):
        slurm_meeting(step)
