"""``ina schedule policies``: what can be simulated."""

from __future__ import annotations

import json as json_module

from controller.cli import options
from controller.cli.output import out
from controller.simulator.siblings import family, known

EPILOG = """Examples:

  ina schedule policies

  ina schedule policies --json
"""

FAMILIES = {
    "": "as the papers have them, in one speed model",
    "coded": "as Muri's public simulator has them, to the digit",
    "synergy": "CPUs and memory by sensitivity; --matrix FILE, or made-up models",
    "lucid": "speeds of measured pairs of jobs; --profiles and --pairs FILE, or made-up ones",
}


def policies(json: options.Json = False) -> None:
    """List the policies by family. Figures of one family are comparable, those of two are not."""
    found: dict[str, list[str]] = {}
    for name in known():
        found.setdefault(family(name), []).append(name)
    if json:
        print(json_module.dumps({"name": "schedule policies", "policies": found}, indent=2))
        return
    for group, names in found.items():
        out.print(f"{group or 'plain'}: {FAMILIES.get(group, '')}", style="bold", highlight=False)
        for name in names:
            out.print(f"  {name}", highlight=False)
