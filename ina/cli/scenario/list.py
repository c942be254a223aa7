"""``ina scenario list``: the included scenarios."""

from __future__ import annotations

from ina.cli import options
from ina.cli.output import table
from ina.cli.plain import Result

EPILOG = """Examples:

  ina scenario list
"""


def list_(*, json: options.Json = False) -> None:
    """List the included scenarios, and the files to copy for your own."""
    from bmv2_topos.scenarios import load_scenario, shipped

    rows = {name: (load_scenario(path), path) for name, path in shipped().items()}
    if json:
        of = {
            name: {"summary": each.summary, "topology": each.topology.name, "file": str(path)}
            for name, (each, path) in rows.items()
        }
        Result("scenario list", {}, {"scenarios": len(rows)}, of).print_json()
        return
    table(
        "Scenarios",
        ["name", "topology", "program", "what happens"],
        [[name, each.topology.name, each.program, each.summary] for name, (each, _) in rows.items()],
    )
