"""The ranks of this machine, for ``ina run`` on another one (`ina.runtime.agent`)."""

from __future__ import annotations

import sys

from hostlib.launch import keeper
from ina.runtime.agent import Agent

if __name__ == "__main__":
    keeper.adopt()
    Agent(sys.stdin, sys.stdout).run()
    keeper.end_adopted()
