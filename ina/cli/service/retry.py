"""``ina retry``: a job of a controller that failed."""

from __future__ import annotations

import json as json_module

from ina.cli import options
from ina.cli.output import out
from ina.cli.service.common import ControllerOptions, JobName, plain

EPILOG = """Examples:

  ina retry night-run --controller http://127.0.0.1:9580
"""


def retry(job: JobName, *, at: ControllerOptions, json: options.Json = False) -> None:
    """Retry a failed job, from its last checkpoint."""
    with at.connect() as controller:
        found = controller.retry(job)
    if json:
        print(json_module.dumps(found, indent=2))
        return
    out.print(f"{plain(found['id'])}: {found['state']}", soft_wrap=True)
