"""``ina topo list``: the catalog."""

from __future__ import annotations

from controller.vocabulary import CATALOG, named
from ina.cli import options
from ina.cli.output import table
from ina.cli.plain import Result

EPILOG = """Examples:

  ina topo list
"""


def list_(*, json: options.Json = False) -> None:
    """List the topologies of the catalog.

    Give sizes after a colon, joined by x, in the order of the table: leaf-spine:2x4x2.
    """
    rows = {}
    for name, entry in CATALOG.items():
        topology = named(name)
        rows[name] = {
            "sizes": " x ".join(f"{what} {size}" for what, size in entry.sizes.items()),
            "switches": len(topology.switches),
            "hosts": len(topology.servers),
            "summary": entry.summary,
        }
    if json:
        Result("topo list", {}, {"topologies": len(rows)}, rows).print_json()
        return
    table(
        "Topologies (hosts: includes one for the fallback server)",
        ["name", "default size", "switches", "hosts", "what it is"],
        [[name, *map(str, row.values())] for name, row in rows.items()],
    )
