"""The controller's part of ``ina explain``."""

from __future__ import annotations

import json as json_module

from ina.cli.output import out
from ina.cli.service.common import ControllerOptions, line, plain
from ina.cli.service.show import print_job


def explain(job: str, at: ControllerOptions, *, json: bool) -> None:
    """Print why a job of a controller stands as it does."""
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
