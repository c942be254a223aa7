"""Testbeds of network namespaces: hosts, switches and links, made with iproute2 alone.

A testbed is brought up by one command and used by others, until it is taken down; `ina.run` runs jobs
on it::

    state = up("office", topology, Program("exclusive", lanes=256))
    execute("office", "h1", ["ip", "addr"])
    down("office")

`temporary` keeps a testbed up for the duration of a block.
"""

from bmv2_topos.testbeds.netns.commands import Program
from bmv2_topos.testbeds.netns.errors import (
    BadName,
    MissingRequirement,
    NameTaken,
    NeedsRoot,
    NetnsError,
    NoTestbed,
    StepFailed,
    Unsupported,
)
from bmv2_topos.testbeds.netns.names import check_name, slug
from bmv2_topos.testbeds.netns.namespaces import check_here
from bmv2_topos.testbeds.netns.store import State, known, missing
from bmv2_topos.testbeds.netns.targets import TARGETS
from bmv2_topos.testbeds.netns.testbed import (
    cluster_topology,
    commands_of,
    down,
    execute,
    find,
    temporary,
    up,
)

__all__ = [
    "TARGETS",
    "BadName",
    "MissingRequirement",
    "NameTaken",
    "NeedsRoot",
    "NetnsError",
    "NoTestbed",
    "Program",
    "State",
    "StepFailed",
    "Unsupported",
    "check_here",
    "check_name",
    "cluster_topology",
    "commands_of",
    "down",
    "execute",
    "find",
    "known",
    "missing",
    "slug",
    "temporary",
    "up",
]
