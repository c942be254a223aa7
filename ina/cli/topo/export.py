"""``ina topo export``: a running testbed as a cluster file."""

from __future__ import annotations

import json as json_module
from typing import Annotated

import typer

from controller.vocabulary import dump_topology
from controller.vocabulary.files import topology_document
from ina.cli.topo.topology import Testbed, one_name

EPILOG = """Examples:

  ina topo up two-racks:2 --program shared

  ina topo export > lab.yaml

  ina topo export two-racks-2 --json > lab.json
"""


def export_(
    *,
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="Name the testbed. Default: the only one that is up.")
    ] = None,
    testbed: Testbed = None,
    json: Annotated[bool, typer.Option("--json", help="Print JSON instead of YAML.")] = False,
) -> None:
    """Print a running testbed as a cluster file: its switches, its machines, their ports and addresses.

    'ina admit --cluster' and 'ina run --hosts' take the file, and so does INA_CLUSTER.
    """
    from bmv2_topos.testbeds import netns

    found = netns.exported(netns.find(one_name(name, testbed)))
    if json:
        print(json_module.dumps(topology_document(found), indent=1))
    else:
        print(dump_topology(found), end="")
