"""``ina reload``: a controller reads its files again."""

from __future__ import annotations

import json as json_module

from ina.cli import options
from ina.cli.output import out
from ina.cli.service.common import ControllerOptions, plain

EPILOG = """Examples:

  ina reload --controller http://127.0.0.1:9580

  ina reload --json
"""


def reload(*, at: ControllerOptions, json: options.Json = False) -> None:
    """Have a controller read its --cluster and --policies files again, and print what differs.

    Jobs that a changed cluster does not touch run on; others get other places. A file that is wrong changes
    nothing. Only operators may do this.
    """
    with at.connect() as controller:
        found = controller.reload()
    if json:
        print(json_module.dumps(found, indent=2))
        return
    for text in found["cluster"] or ["the cluster is as before"]:
        out.print(plain(text), soft_wrap=True)
    shown = ", ".join(f"{kind} {name}" for kind, name in found["policies"].items())
    out.print(f"policies: {plain(shown)}", soft_wrap=True)
