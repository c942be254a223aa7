"""``ina explain``: why a controller's job runs where it does, waits or has ended."""

from __future__ import annotations

import json as json_module
from typing import Annotated

import typer

from ina.cli import options
from ina.cli.output import out
from ina.cli.service.common import ControllerOptions, line, plain
from ina.cli.service.show import print_job

EPILOG = """Examples:

  ina explain night-run --controller http://127.0.0.1:9580

  ina explain night-run --json
"""


def explain(
    job: Annotated[str, typer.Argument(metavar="JOB", help="Name the job, or give its id.")],
    *,
    at: ControllerOptions,
    json: options.Json = False,
) -> None:
    """Explain why a controller's job runs where it does, waits or has ended.

    Prints all that the controller has decided of the job, and what the job needs now. Of decisions on files
    'ina alloc', 'ina place', 'ina route' and 'ina cluster simulate' explain a job with --explain.
    """
    with at.connect() as controller:
        found = controller.explain(job)
    if json:
        print(json_module.dumps(found, indent=2))
        return
    print_job(found["job"], found["now_s"])
    if found["advice"]:
        out.print("\nnow", style="bold")
        for sentence in found["advice"]:
            out.print(f"  {plain(sentence)}", soft_wrap=True)
    out.print("\ndecisions", style="bold")
    for decision in found["decisions"]:
        out.print(line(decision), soft_wrap=True)
