"""Undefined behaviour of P4: find where a program depends on it, and replace it by defined behaviour.

`find` explores the paths of a program and reports reads of fields of headers that may be invalid, of values
that were never set, and of registers and stacks beyond their ends. `settled` replaces undefined behaviour in
the program according to a `Choice`, so that all back ends agree::

    state         facts about a packet on one path; merging of paths
    conditions    facts that follow from a condition; undefined reads in expressions
    find          exploration of all paths through parser, blocks and tables
    settle        the program with the behaviour of one `Choice`
"""

from __future__ import annotations

from softswitch.compiler.undefined.conditions import Finding
from softswitch.compiler.undefined.find import find
from softswitch.compiler.undefined.settle import settled

__all__ = ["Finding", "find", "settled"]
