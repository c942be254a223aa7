"""``ina schedule policies``: what can be simulated."""

from __future__ import annotations

import json as json_module

from controller.cli import options
from controller.cli.output import out
from controller.simulator.families import FAMILIES, full_name

EPILOG = """Examples:

  ina schedule policies

  ina schedule policies --json
"""


def policies(json: options.Json = False) -> None:
    """List the policies by family. Figures of one family are comparable, those of two are not."""
    if json:
        found = {
            kind: [full_name(kind, policy) for policy in family.policies] for kind, family in FAMILIES.items()
        }
        print(json_module.dumps({"name": "schedule policies", "policies": found}, indent=2))
        return
    for kind, family in FAMILIES.items():
        out.print(f"{kind or 'plain'}: {family.about}", style="bold", highlight=False, soft_wrap=True)
        names = {full_name(kind, policy): about for policy, about in family.policies.items()}
        width = max(map(len, names))
        for name, about in names.items():
            out.print(f"  {name:{width}}  {about}".rstrip(), highlight=False, soft_wrap=True)
