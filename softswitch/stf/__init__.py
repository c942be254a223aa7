"""The Simple Test Framework: scripts of table entries and packets, as in p4c's tests.

``script`` reads the text, ``control`` finds the script's tables, keys and actions in a program and applies
the entries to a switch, and ``run`` sends the packets and checks the output::

    text  →  statements  →  a switch in virtual time, or any `Target`  →  Report
"""

from __future__ import annotations

from softswitch.engine.pipeline import Event
from softswitch.stf.control import Control
from softswitch.stf.run import Reading, ScriptFailure, ScriptReport, play, ports_of, run_script
from softswitch.stf.runtime import RuntimeFileError
from softswitch.stf.script import PacketLine, ScriptError, Statement, parse_script

__all__ = [
    "Control",
    "Event",
    "PacketLine",
    "Reading",
    "RuntimeFileError",
    "ScriptError",
    "ScriptFailure",
    "ScriptReport",
    "Statement",
    "parse_script",
    "play",
    "ports_of",
    "run_script",
]
