"""Runs scenarios of the modules here as groups of ranks: to import torch takes seconds, to fork none.

Reads lines of JSON {"scenario": name and arguments, "ranks": [environment, …]}, and answers each with the
list of what the ranks came to: {"result": …}, {"error": [type, text]}, or {"status": …} of one that ended
without either.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

import horovod_scenarios
import sharded_scenarios
import staging_scenarios
import torch
import torch_scenarios

MODULES = (staging_scenarios, sharded_scenarios, torch_scenarios, horovod_scenarios)
SCENARIOS = {name: value for module in MODULES for name, value in vars(module).items()}

LONGEST_S = 300


def run(scenario: str, environment: dict[str, str], answer: int) -> None:
    """Be a rank."""
    os.dup2(2, 1)
    os.environ.update(environment)
    signal.alarm(LONGEST_S)
    torch.set_num_threads(1)  # they would wait for each other, busily
    name, *arguments = scenario.split()
    try:
        said: dict[str, Any] = {"result": SCENARIOS[name](*arguments)}
    except BaseException as error:
        said = {"error": [type(error).__name__, str(error)]}
    with os.fdopen(answer, "w") as pipe:
        json.dump(said, pipe)
    os._exit(0)  # as a rank that does not clean up


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        running = []
        for environment in asked["ranks"]:
            reader, writer = os.pipe()
            pid = os.fork()
            if pid == 0:
                os.close(reader)
                run(asked["scenario"], environment, writer)
            os.close(writer)
            running.append((pid, reader))
        answers = []
        for pid, reader in running:
            with os.fdopen(reader) as pipe:
                text = pipe.read()
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            answers.append(json.loads(text) if text else {"status": status})
        print(json.dumps(answers), flush=True)


if __name__ == "__main__":
    main()
