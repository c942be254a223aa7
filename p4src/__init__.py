"""Shared by both ends of P4Runtime: the switch programs, and messages that carry P4Info and entries.

A leaf: it imports nothing of this project, and `softswitch` and `controller`, which may not import each
other, take it from here. The P4 sources lie beside as data.
"""
