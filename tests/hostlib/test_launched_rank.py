from __future__ import annotations

import pytest

from hostlib.errors import ConfigError
from hostlib.launch.launched_rank import (
    PORTS,
    LaunchedRank,
    first_node,
    launched_rank,
    slurm_meeting,
    torch_variables,
)
from hostlib.settings import Settings

TORCHRUN = {
    "RANK": "5",
    "WORLD_SIZE": "8",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "4",
    "MASTER_ADDR": "node0",
    "MASTER_PORT": "29500",
    "TORCHELASTIC_RUN_ID": "none",
    "TORCHELASTIC_RESTART_COUNT": "0",
}
OPENMPI = {
    "OMPI_COMM_WORLD_RANK": "2",
    "OMPI_COMM_WORLD_SIZE": "3",
    "OMPI_COMM_WORLD_LOCAL_RANK": "0",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
    "PMIX_NAMESPACE": "4711",
}
SLURM = {
    "SLURM_JOB_ID": "99",
    "SLURM_STEP_ID": "0",
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "7",
    "SLURM_LOCALID": "1",
    "SLURM_NODEID": "1",
    "SLURM_TASKS_PER_NODE": "2(x3),1",
}


def place(environment: dict[str, str]) -> LaunchedRank:
    found = launched_rank(environment)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("environment", "expected"),
    [(TORCHRUN, ("torchrun", 5, 8, 1, 4)), (OPENMPI, ("mpirun", 2, 3, 0, 1)), (SLURM, ("srun", 3, 7, 1, 2))],
)
def test_a_launchers_variables_are_read(environment: dict[str, str], expected: tuple[object, ...]) -> None:
    found = place(environment)
    assert (found.launcher, found.rank, found.size, found.local_rank, found.local_size) == expected


def test_without_a_launcher_there_is_no_place() -> None:
    assert launched_rank({}) is None
    assert launched_rank({"RANK": "0", "WORLD_SIZE": "1"}) is None, "set by hand, for one rank"
    batch_script = {name: text for name, text in SLURM.items() if name != "SLURM_STEP_ID"}
    assert launched_rank(batch_script) is None


def test_launches_are_told_apart_and_ranks_of_one_are_not() -> None:
    assert place(TORCHRUN).launch == place(TORCHRUN | {"RANK": "4", "LOCAL_RANK": "0"}).launch
    assert place(TORCHRUN).launch != place(TORCHRUN | {"TORCHELASTIC_RESTART_COUNT": "1"}).launch
    assert place(SLURM).launch != place(SLURM | {"SLURM_STEP_ID": "1"}).launch


def test_a_second_torchrun_with_the_same_port_is_another_launch() -> None:
    first, second = (
        place(
            TORCHRUN | {"TORCHELASTIC_ERROR_FILE": f"/tmp/torchelastic_a/none_{run}/attempt_0/1/error.json"}
        )
        for run in ("x1", "x2")
    )
    assert first.launch != second.launch
    other_rank = {"TORCHELASTIC_ERROR_FILE": "/tmp/torchelastic_a/none_x1/attempt_0/0/error.json"}
    assert place(TORCHRUN | other_rank | {"RANK": "4", "LOCAL_RANK": "0"}).launch == first.launch


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (
            {name: text for name, text in OPENMPI.items() if name != "PMIX_NAMESPACE"},
            "mpirun has set a rank, but not PMIX_NAMESPACE or OMPI_MCA_ess_base_jobid: the ranks of",
        ),
        (SLURM | {"SLURM_JOB_ID": ""}, "srun has set a rank, but not SLURM_JOB_ID"),
        (
            {k: v for k, v in TORCHRUN.items() if k != "MASTER_PORT"},
            "torchrun has set a rank, but not MASTER_PORT",
        ),
        (TORCHRUN | {"RANK": "x"}, "RANK is 'x', must be a whole number"),
        (TORCHRUN | {"RANK": "8"}, "torchrun: rank is 8, must be 0..7 of 8"),
        (TORCHRUN | {"LOCAL_RANK": "4"}, "local rank is 4, must be 0..3 of 4"),
        (TORCHRUN | {"LOCAL_WORLD_SIZE": "9"}, "9 ranks on this machine, of 8"),
        ({"OMPI_COMM_WORLD_RANK": "0"}, "OMPI_COMM_WORLD_SIZE is None"),
        (SLURM | {"SLURM_TASKS_PER_NODE": "2(x"}, "SLURM_TASKS_PER_NODE is '2(x'"),
        ({"PMI_SIZE": "2"}, "this is one of 2 ranks of the mpirun of MPICH or Intel MPI (PMI_SIZE), which"),
        ({"HOROVOD_SIZE": "3"}, "this is one of 3 ranks of horovodrun (HOROVOD_SIZE), which does not"),
        ({"RANK": "1", "WORLD_SIZE": "2"}, "one of 2 ranks of a launch by other means (WORLD_SIZE), which"),
        (SLURM | {"SLURM_NODEID": "4"}, "SLURM_TASKS_PER_NODE is '2(x3),1'"),
    ],
)
def test_variables_that_cannot_be_are_named(environment: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        launched_rank(environment)
    assert message in str(raised.value)


def test_what_torch_gets_is_what_is_read() -> None:
    variables = torch_variables(1, 4, ("127.0.0.1", 2000))
    assert (variables["MASTER_ADDR"], variables["MASTER_PORT"]) == ("127.0.0.1", "2000")
    assert place(variables).rank == 1


def test_settings_have_defaults() -> None:
    assert Settings.from_environment({}) == Settings()
    assert Settings.from_environment({"INA_SWITCH": "", "INA_OPTIONS": "--slots '64'"}).options == (
        "--slots",
        "64",
    )


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("INA_OPTIONS", "'x", 'INA_OPTIONS is "\'x": No closing quotation'),
        ("INA_STALL_S", "soon", "INA_STALL_S is 'soon', must be a number of seconds from 0.1 on"),
        ("INA_STALL_S", "nan", "INA_STALL_S is 'nan'"),
        ("INA_NONFINITE", "ignore", "INA_NONFINITE is 'ignore', must be one of propagate, raise"),
        ("INA_NUMBERS", "block2", "'block2', must be one of exponent, block16, block8, block4"),
        ("INA_FLOAT64", "double", "INA_FLOAT64 is 'double', must be one of gloo, switch"),
    ],
)
def test_settings_that_cannot_be_are_named(name: str, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Settings.from_environment({name: text})
    assert message in str(raised.value)


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
