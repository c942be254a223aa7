"""The Simple Test Framework: scripts of table entries and packets, as p4c's tests have them.

``script`` reads the text, ``names`` finds what it calls tables, keys and actions in a program,
``control`` sets that up on a switch, and ``run`` sends the packets and judges what comes out::

    text  →  statements  →  a switch in virtual time  →  Report
"""

from __future__ import annotations

from softswitch.engine.trace import Event
from softswitch.stf.run import Failure, Reading, Report, run_script
from softswitch.stf.script import ScriptError, parse_script

__all__ = ["Event", "Failure", "Reading", "Report", "ScriptError", "parse_script", "run_script"]
