"""``ina topo down``: stop a testbed, also a partly started one."""

from __future__ import annotations

from typing import Annotated

import typer

from ina.cli.plain import say
from ina.cli.topo.topology import Testbed, one_name

EPILOG = """Examples:

  ina topo down fat-tree:4

  ina topo down --all
"""


def down_(
    *,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name the testbed. Default: the only one that is up.")
    ] = None,
    testbed: Testbed = None,
    all_: Annotated[bool, typer.Option("--all", help="Stop all known testbeds.")] = False,
) -> None:
    """Stop a testbed: end its processes, and remove its namespaces and files.

    Also removes the rest of a testbed that was only partly started or stopped. Without NAME, succeeds if
    there is none.
    """
    from bmv2_topos.testbeds import netns

    given = one_name(name, testbed)
    names = [given] if given else netns.known()
    if not given and not all_ and len(names) > 1:
        raise netns.NoTestbed(f"several testbeds are up: {', '.join(names)}; give one NAME, or --all")
    for each in names:
        if not netns.down(each):
            raise netns.missing(each)
        say(f"ina: testbed {each} is down")
