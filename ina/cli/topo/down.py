"""``ina topo down``: a testbed is taken down, whatever is left of it."""

from __future__ import annotations

from typing import Annotated

import typer

from ina.cli.plain import say

EPILOG = """Examples:

  sudo ina topo down fat-tree:4

  sudo ina topo down --all
"""


def down_(
    *,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="The testbed; may be left out if one is up.")
    ] = None,
    all_: Annotated[bool, typer.Option("--all", help="All testbeds that are known.")] = False,
) -> None:
    """Take a testbed down: its processes end, its namespaces and files are removed.

    Works on whatever is left of it, too; of nothing there is nothing to do, which is no error.
    """
    from bmv2_topos.testbeds import netns

    names = [netns.slug(name)] if name else netns.known()
    if not name and not all_ and len(names) > 1:
        raise netns.NoTestbed(f"which testbed? {', '.join(names)} are up: say which, or --all")
    for each in names:
        if netns.down(each):
            say(f"ina: testbed {each} is down")
            continue
        say(f"ina: there is no testbed {each}, and nothing of it")
