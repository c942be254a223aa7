"""Ranks that others start: torchrun, mpirun's and srun's variables, and `ina admit` behind them."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pytest

import hostlib
from hostlib.launch.hosting import MEETING_S
from hostlib.launch.launched_rank import launched_rank
from hostlib.meet.connections import listen, private_folder
from tests.system.command import (
    FAMILY,
    ROOT,
    begun,
    ended,
    finish,
    here,
    ina,
    relatives,
    start,
    succeed,
    until,
)

LAUNCHES = itertools.count()
SUM = (
    "import numpy as np, hostlib as ina; ina.init(); print(ina.rank(), ina.allreduce(np.ones(3, np.float32)))"
)


def launch(
    code: str, environments: Sequence[Mapping[str, str]], before: Sequence[str] = ()
) -> list[subprocess.Popen[str]]:
    """Start a process for each environment, as a launcher does; `before` is a command that runs it."""
    return [
        subprocess.Popen(
            [*before, sys.executable, "-c", code],
            cwd=ROOT,
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for environment in environments
    ]


def openmpi(size: int) -> list[dict[str, str]]:
    """Return what mpirun sets for each rank of a launch of its own."""
    launched = next(LAUNCHES)
    return [
        {
            "OMPI_COMM_WORLD_RANK": str(rank),
            "OMPI_COMM_WORLD_SIZE": str(size),
            "OMPI_COMM_WORLD_LOCAL_RANK": str(rank),
            "OMPI_COMM_WORLD_LOCAL_SIZE": str(size),
            "PMIX_NAMESPACE": f"test-{os.getpid()}-{launched}",
        }
        for rank in range(size)
    ]


def nothing_left() -> None:
    """Wait until `ina admit` of a launch has ended."""
    until(lambda: not started_as("-m ina admit"), 60)


def started_as(words: str) -> list[int]:
    """Return this test's processes that have these words in their command lines."""
    found = []
    for process in relatives(os.environ[FAMILY].split()[-1]):
        with suppress(OSError):
            command = Path(f"/proc/{process}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            found += [process] if words in command else []
    return found


def test_ranks_that_a_script_starts_each_find_each_other(write_file: Callable[[str, str], Path]) -> None:
    """As with ``mpirun wrapper.sh``: no two ranks have one parent."""
    script = write_file("wrapper.sh", '#!/bin/sh\n"$@"\nexit $?\n')
    script.chmod(0o700)
    ranks = launch(SUM, openmpi(3), before=[str(script)])
    assert succeed(ranks) == [f"{rank} [3. 3. 3.]\n" for rank in range(3)]
    nothing_left()


@pytest.mark.parametrize("first", ["import os; os.kill(os.getpid(), 9)", SUM], ids=["at once", "admitting"])
def test_a_first_rank_that_dies_before_the_job_is_admitted_ends_the_others_wait(first: str) -> None:
    """At once where it has come, after `HERE_S` where it never came."""
    environments = openmpi(2)
    folder = private_folder()
    before = {*folder.glob("launch-*")}
    (zero,) = launch(first, environments[:1])
    if first == SUM:
        until(lambda: {*folder.glob("launch-*")} - before, 60)
        zero.kill()
    zero.communicate()
    waits = "import hostlib.launch.machines as machines; machines.HERE_S = 1.0; "
    (one,) = launch(waits + SUM, environments[1:])
    began = time.monotonic()
    errors = one.communicate()[1]
    assert one.returncode == 1
    assert "rank 0 does not listen after 1 s" in errors
    assert time.monotonic() - began < MEETING_S


def test_a_first_rank_that_dies_while_it_is_waited_for_is_named() -> None:
    waits = (
        "import hostlib.launch.machines as machines; next_message = machines.next_message; "
        "machines.next_message = lambda *a, **k: (print('waits', flush=True), next_message(*a, **k))[1]; "
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:  # a switch that never answers
        switch = {"INA_SWITCH": f"grpc://127.0.0.1:{silent.getsockname()[1]}"}
        environments = [{**each, **switch} for each in openmpi(2)]
        zero, one = (launch(waits + SUM, [each])[0] for each in environments)
        begun(one, word="waits")
        ended(zero, by=signal.SIGKILL)
        errors = one.communicate(timeout=60)[1]
    assert "rank 1: rank 0 is gone, or does not answer (the connection has ended)" in errors


def test_two_launches_of_other_sizes_with_the_same_identifiers_are_told_so() -> None:
    two, three = openmpi(2), openmpi(3)
    same = {"PMIX_NAMESPACE": two[0]["PMIX_NAMESPACE"]}
    ranks = launch(SUM, two[:1]) + launch(SUM, [{**three[2], **same}])
    errors = ranks[1].communicate()[1]
    for process in ranks:
        ended(process, by=signal.SIGKILL)
    assert (
        "refused by rank 0: it is in a launch of 3 ranks, this launch has 2 ranks and the same identifiers"
        in errors
    )


def test_what_an_earlier_launch_with_the_same_identifiers_left_is_not_taken(tmp_path: Path) -> None:
    folder = {"XDG_RUNTIME_DIR": str(tmp_path)}
    environments = [{**each, **folder} for each in openmpi(2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        at = private_folder()
    place = launched_rank(environments[1])
    name = f"launch-{hashlib.sha256(place.launch.encode()).hexdigest()[:32]}"
    listen(at / name, 1).close()  # leaves its path
    ranks = launch(SUM, environments[1:]) + launch(SUM, environments[:1])
    assert all(output.endswith("[2. 2. 2.]\n") for output in succeed(ranks))
    nothing_left()


def test_a_killed_first_rank_ends_the_job_for_all() -> None:
    code = f"{SUM}; import os; ina.rank() or os.kill(os.getpid(), 9); ina.barrier()"
    ranks = launch(code, openmpi(2))
    said = [process.communicate() for process in ranks]
    assert ranks[0].returncode == -signal.SIGKILL
    assert ranks[1].returncode == 1
    assert "PeerLost" in said[1][1]
    assert "lost rank 0" in said[1][1]
    nothing_left()


def test_what_cannot_be_admitted_is_told_to_all_ranks() -> None:
    ranks = launch(SUM, [{**each, "INA_OPTIONS": "--lanes 33"} for each in openmpi(2)])
    said = [process.communicate()[1] for process in ranks]
    assert [process.returncode for process in ranks] == [1, 1]
    assert "'ina admit' ended with status" in said[0]
    assert "rank 1: rank 0 could not admit the job: 'ina admit' ended" in said[1]


def test_ranks_of_a_machine_are_summed_there_first_if_asked_to() -> None:
    code = f"{SUM}; print(ina.statistics()['packets_sent'] > 0)"
    ranks = launch(code, [{**each, "INA_HIERARCHICAL": "1"} for each in openmpi(3)])
    assert succeed(ranks) == [f"{rank} [3. 3. 3.]\n{rank == 0}\n" for rank in range(3)]
    nothing_left()


ALONE = (
    "import numpy as np, hostlib as ina; ina.init(); ina.allreduce(np.ones(999, np.int32)); "
    "print(ina.statistics()['packets_sent'])"
)


def test_a_launch_of_one_process_sends_nothing_and_one_worker_of_ina_run_does() -> None:
    for environments in ([{}], openmpi(1)):
        (process,) = launch(ALONE, environments)
        assert process.communicate()[0] == "0.0\n"
    done = ina("run", "-np", 1, "--lanes", 32, "--", sys.executable, "-c", ALONE)
    assert done.stdout.startswith("32.0\n"), "999 elements in packets of 32"


def test_admit_takes_the_ranks_of_machines_once_each() -> None:
    for options, text in (
        (("--machines", "0,1/2"), "--machines '0,1/2': want each rank of 0..3 once"),
        (("--machines", "0,x/2"), "want each rank of 0..3 once"),
        (
            ("--host", "1=10.0.0.1/02:00:00:00:00:01"),
            "--host needs a program whose slots are not shared, such as exclusive, and a running switch",
        ),
        (("--switch", "grpc://127.0.0.1:1", "--host", "1"), "--host '1': want PORT=IP/MAC"),
    ):
        done = here("admit", "-np", 4, *options, status=2)
        assert text in done.stderr
        assert text in json.loads(done.stdout)["failed"], "ranks of other machines do not see our messages"


def test_admit_says_once_what_ranks_must_know_and_ends_with_its_input() -> None:
    process = start("admit", "-np", 2, "--slots", 64)
    # its standard input has ended, and nobody has joined
    output, _ = finish(process)
    first, last = output.splitlines()
    configs = [hostlib.JobConfig.from_json(json.dumps(each)) for each in json.loads(first)["configs"]]
    assert [config.rank for config in configs] == [0, 1]
    assert len({config.token for config in configs}) == 1
    assert json.loads(last)["allreduces"] == 0


def test_admit_refuses_what_run_refuses() -> None:
    assert "33 workers: want 1 to 32 per switch" in here("admit", "-np", 33, status=2).stderr
