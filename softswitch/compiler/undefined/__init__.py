"""Behaviour that P4 leaves undefined: where a program depends on it, and the choice made there.

`find` explores the paths of a program and says where it reads fields of headers that may be invalid, values
that nothing has set, and registers and stacks beyond their ends. `settled` makes the choice part of the
program, so that all back ends do the same::

    state         what is known of a packet on one path, and paths side by side, kept few
    conditions    what a condition adds to that, and what expressions read that is undefined
    find          all paths through parser, blocks and tables
    settle        the program with one `Choice` built in
"""

from __future__ import annotations

from softswitch.compiler.undefined.conditions import Finding
from softswitch.compiler.undefined.find import find
from softswitch.compiler.undefined.settle import settled

__all__ = ["Finding", "find", "settled"]
