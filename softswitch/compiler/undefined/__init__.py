"""Undefined behaviour of P4: the places where a program depends on it, and the choice made there.

`find` explores the paths of a program and reports reads of fields of headers that may be invalid, of unset
values, and of registers and stacks beyond their ends. `settled` makes the choice part of the
program, so that all back ends agree::

    state         knowledge of a packet on one path, and parallel paths, kept few
    conditions    knowledge gained from a condition, and undefined reads of expressions
    find          all paths through parser, blocks and tables
    settle        the program with one `Choice` built in
"""

from __future__ import annotations

from softswitch.compiler.undefined.conditions import Finding
from softswitch.compiler.undefined.find import find
from softswitch.compiler.undefined.settle import settled

__all__ = ["Finding", "find", "settled"]
