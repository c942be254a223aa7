"""The kinds of switches for testbeds, behind one interface."""

from __future__ import annotations

from collections.abc import Mapping

from bmv2_topos.testbeds.netns.bmv2 import Bmv2Target
from bmv2_topos.testbeds.netns.commands import BMV2, EMBEDDED, Program, SwitchTarget
from bmv2_topos.testbeds.netns.embedded import EmbeddedTarget

TARGETS: Mapping[str, SwitchTarget] = {EMBEDDED: EmbeddedTarget(), BMV2: Bmv2Target()}


def target_of(program: Program) -> SwitchTarget:
    """Return the kind of switch that runs a program (`Program.target`)."""
    return TARGETS[program.target]
