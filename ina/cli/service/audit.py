"""``ina audit``: what is intended against what is."""

from __future__ import annotations

import json as json_module

from ina.cli import options
from ina.cli.errors import Failure
from ina.cli.output import out, table
from ina.cli.plain import plural
from ina.cli.service.common import ControllerOptions, plain

EPILOG = """Examples:

  ina audit --controller http://127.0.0.1:9580

  ina audit --json
"""


def audit(*, at: ControllerOptions, json: options.Json = False) -> None:
    """Compare what a controller intends with what switches and servers hold.

    Exits with status 1 if they differ, or if a switch could not be read.
    """
    with at.connect() as controller:
        found = controller.audit()
    if json:
        print(json_module.dumps(found, indent=2))
    elif found["clean"]:
        out.print("all switches and servers hold what they should, and nothing else")
    else:
        rows = [[plain(each["where"]), plain(each["what"])] for each in found["found"]]
        rows += [[name, f"could not be read: {plain(why)}"] for name, why in found["left_out"].items()]
        table(plural(len(rows), "difference"), ["where", "what"], rows, left=("where", "what"))
    if not found["clean"]:
        differences = len(found["found"]) + len(found["left_out"])
        raise Failure(f"the audit found {plural(differences, 'difference')}")
