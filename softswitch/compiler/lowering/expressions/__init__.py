"""Expressions: checked, folded, and lowered to those of the IR."""
