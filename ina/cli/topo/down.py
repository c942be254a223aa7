"""``ina topo down``: stop a testbed, also a partly started one."""

from __future__ import annotations

from typing import Annotated

import typer

from ina.cli.plain import say

EPILOG = """Examples:

  ina topo down fat-tree:4

  ina topo down --all
"""


def down_(
    *,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name the testbed. Default: the only one that is up.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="Stop all known testbeds.")] = False,
) -> None:
    """Stop a testbed: end its processes, and remove its namespaces and files.

    Also removes the rest of a testbed that was only partly started or stopped. Succeeds if there is none.
    """
    from bmv2_topos.testbeds import netns

    names = [netns.slug(name)] if name else netns.known()
    if not name and not all_ and len(names) > 1:
        raise netns.NoTestbed(f"several testbeds are up: {', '.join(names)}; give one NAME, or --all")
    for each in names:
        if netns.down(each):
            say(f"ina: testbed {each} is down")
            continue
        say(f"ina: there is no testbed {each}")
