"""``ina schedule policies``: what can be simulated."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from typing import Annotated

import typer

from controller import plugins
from controller.policies.families.outside import GROUP
from controller.policies.registry import FAMILIES, full_name, known
from ina.cli import options
from ina.cli.output import out

EPILOG = """Examples:

  ina schedule policies

  ina schedule policies --all

  ina schedule policies --json
"""


def policies(
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="List baselines, further combinations, and replicas of public simulators, too.",
        ),
    ] = False,
    json: options.Json = False,
) -> None:
    """List the policies by family, and their parameters.

    Compare figures only within one family. --json lists all policies.
    """
    if json:
        found = {
            kind: [full_name(kind, policy) for policy in family.policies] for kind, family in FAMILIES.items()
        }
        settings = {
            kind: {name: asdict(setting) for name, setting in family.settings.items()}
            for kind, family in FAMILIES.items()
        }
        document = {
            "name": "schedule policies",
            "policies": found,
            "outside": plugins.names(GROUP),
            "settings": settings,
        }
        print(json_module.dumps(document, indent=2, default=str))
        return
    shown = 0
    for kind, family in FAMILIES.items():
        names = list(family.policies) if everything else family.main
        if not names:
            continue
        shown += len(names)
        lines = [(full_name(kind, name), family.policies[name]) for name in names]
        lines += [(f"--set {name}={each.default:g}", each.about) for name, each in family.settings.items()]
        width = max(len(name) for name, _ in lines)
        out.print(f"{kind or 'plain'}: {family.about}", style="bold", highlight=False, soft_wrap=True)
        for name, about in lines:
            out.print(f"  {name:{width}}  {about}", highlight=False, soft_wrap=True)
    if offered := plugins.names(GROUP):
        out.print(f"from installed packages: {', '.join(offered)}", highlight=False, soft_wrap=True)
    if not everything:
        others = ", ".join(f"{kind}:" for kind, family in FAMILIES.items() if not family.main)
        out.print(
            f"--all lists {len(known()) - shown} more: baselines, further combinations, and replicas "
            f"of public simulators ({others}).",
            highlight=False,
            soft_wrap=True,
        )
