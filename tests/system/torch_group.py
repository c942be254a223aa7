"""Groups of ranks with torch, on a switch of this process."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from hostlib.launch.launcher import Rendezvous, torch_variables
from ina.run.launch.agent import server_address
from tests.hostlib.cases import JOB
from tests.hostlib.socket_switch import SocketSwitch
from tests.system.command import ROOT, WORKERS


class Ranks:
    """A process that has torch loaded, and forks ranks; a context manager."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, str(WORKERS / "torch_ranks.py")],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, scenario: str, size: int = 2, **variables: str) -> list[dict[str, Any]]:
        """Return what each rank came to (`torch_ranks`)."""
        with _job(size) as environments:
            ranks = [{**environment, **variables} for environment in environments]
            print(json.dumps({"scenario": scenario, "ranks": ranks}), file=self._process.stdin, flush=True)
            answers: list[dict[str, Any]] = json.loads(self._process.stdout.readline())
            return answers

    def results(self, scenario: str, size: int = 2, **variables: str) -> list[Any]:
        """Return what each rank returned."""
        answers = self.run(scenario, size, **variables)
        assert all("result" in answer for answer in answers), answers
        return [answer["result"] for answer in answers]

    def errors(self, scenario: str, size: int = 2, **variables: str) -> list[tuple[str, str]]:
        """Return what each rank raised: type and text."""
        answers = self.run(scenario, size, **variables)
        assert all("error" in answer for answer in answers), answers
        return [(answer["error"][0], answer["error"][1]) for answer in answers]

    def __enter__(self) -> Ranks:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


@contextlib.contextmanager
def _job(size: int) -> Iterator[list[dict[str, str]]]:
    """Serve a job; give the environments of its ranks."""
    with (
        server_address("127.0.0.1") as store,
        SocketSwitch(size, slots=64) as switch,
        Rendezvous(job=JOB, size=size) as rendezvous,
    ):
        configs = [
            replace(config, rendezvous=rendezvous.address, token=rendezvous.token).to_json()
            for config in switch.configs
        ]
        yield [
            {**torch_variables(rank, size, store.getsockname()), "INA_JOB": config, "OMP_NUM_THREADS": "1"}
            for rank, config in enumerate(configs)
        ]
