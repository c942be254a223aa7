"""Testbeds of network namespaces: hosts and switches with links between them, by iproute2 alone.

A testbed is brought up by one command and used by others, until it is taken down; `ina.service` runs jobs
on it::

    state = up("office", topology, Program("exclusive", lanes=256))
    execute("office", "h1", ["ip", "addr"])
    down("office")

`standing` does so for the time of a block.
"""

from bmv2_topos.testbeds.netns.commands import Program
from bmv2_topos.testbeds.netns.errors import (
    BadName,
    LiveError,
    NeedsRoot,
    NotCarried,
    NoTestbed,
    NotHere,
    StepFailed,
    Taken,
)
from bmv2_topos.testbeds.netns.names import check_name, slug
from bmv2_topos.testbeds.netns.namespaces import check_here
from bmv2_topos.testbeds.netns.store import State, known, missing
from bmv2_topos.testbeds.netns.targets import TARGETS
from bmv2_topos.testbeds.netns.testbed import down, execute, exported, find, planned, standing, up

__all__ = [
    "TARGETS",
    "BadName",
    "LiveError",
    "NeedsRoot",
    "NoTestbed",
    "NotCarried",
    "NotHere",
    "Program",
    "State",
    "StepFailed",
    "Taken",
    "check_here",
    "check_name",
    "down",
    "execute",
    "exported",
    "find",
    "known",
    "missing",
    "planned",
    "slug",
    "standing",
    "up",
]
