"""Behaviour that P4 leaves undefined: where a program depends on it, and the choice made there.

`find` explores the paths of a program and says where it reads fields of headers that may be invalid, values
that nothing has set, and registers and stacks beyond their ends. `settled` makes the choice part of the
program, so that all back ends do the same::

    values, state      what is known of a packet on one path
    conditions         what a condition adds to that
    reads              what expressions read that is undefined
    paths              paths side by side, kept few
    steps, externs     single statements on one path
    statements, tables what branches, on all paths
    parser, find       the parser, and the blocks from there to the deparser
    settle             the program with one `Choice` built in
"""

from __future__ import annotations

from softswitch.compiler.undefined.conditions import Finding
from softswitch.compiler.undefined.find import find
from softswitch.compiler.undefined.settle import settled

__all__ = ["Finding", "find", "settled"]
