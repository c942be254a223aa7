"""``ina schedule policies``: the policies that can be simulated."""

from __future__ import annotations

import json as json_module
from dataclasses import asdict
from typing import Annotated

import typer

from controller import plugins
from controller.policies.registry import FAMILIES, GROUP, find_family, full_name, known
from ina.cli import options
from ina.cli.output import out

EPILOG = """Examples:

  ina schedule policies

  ina schedule policies --all

  ina schedule policies synergy --json
"""


def policies(
    families: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[FAMILY]...",
            show_default="all",
            help="List all policies of these families: the name before a colon, or a file or module "
            "with a FAMILY.",
        ),
    ] = None,
    everything: Annotated[
        bool,
        typer.Option(
            "--all",
            help="List baselines and further combinations, too.",
        ),
    ] = False,
    json: options.Json = False,
) -> None:
    """List the policies by family, and their parameters.

    Compare figures only within one family. --json lists all policies.
    """
    listed = {kind: find_family(kind) for kind in families or FAMILIES}
    if json:
        found = {
            kind: [full_name(kind, policy) for policy in family.policies] for kind, family in listed.items()
        }
        settings = {
            kind: {name: asdict(setting) for name, setting in family.settings.items()}
            for kind, family in listed.items()
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
    for kind, family in listed.items():
        names = list(family.policies) if everything or families else family.main
        if not names:
            continue
        shown += len(names)
        lines = [(full_name(kind, name), family.policies[name]) for name in names]
        lines += [(f"--set {name}={each.default:g}", each.about) for name, each in family.settings.items()]
        width = max(len(name) for name, _ in lines)
        out.print(f"{kind or 'plain'}: {family.about}", style="bold", highlight=False, soft_wrap=True)
        for name, about in lines:
            out.print(f"  {name:{width}}  {about}", highlight=False, soft_wrap=True)
    if families:
        return
    if offered := plugins.names(GROUP):
        out.print(f"from installed packages: {', '.join(offered)}", highlight=False, soft_wrap=True)
    if not everything:
        out.print(
            f"--all lists {len(known()) - shown} more: baselines and further combinations.",
            highlight=False,
            soft_wrap=True,
        )
