"""``ina schedule policies``: what can be simulated."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict

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
        settings = {
            kind: {name: asdict(setting) for name, setting in family.settings.items()}
            for kind, family in FAMILIES.items()
        }
        document = {"name": "schedule policies", "policies": found, "settings": settings}
        print(json_module.dumps(document, indent=2, default=str))
        return
    for kind, family in FAMILIES.items():
        out.print(f"{kind or 'plain'}: {family.about}", style="bold", highlight=False, soft_wrap=True)
        names = {full_name(kind, policy): about for policy, about in family.policies.items()}
        width = max(map(len, names))
        for name, about in names.items():
            out.print(f"  {name:{width}}  {about}".rstrip(), highlight=False, soft_wrap=True)
        for name, setting in family.settings.items():
            said = f"--set {name}={setting.default:g}"
            out.print(f"  {said:{width}}  {setting.about}", highlight=False, soft_wrap=True)
