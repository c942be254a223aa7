"""Numbers of things in words, as messages have them."""

from __future__ import annotations


def plural(number: float, noun: str) -> str:
    """Return a number of things; the noun gets an -s unless the number is 1.

    >>> plural(1, "GPU"), plural(0, "slot"), plural(2.5, "iteration")
    ('1 GPU', '0 slots', '2.5 iterations')
    """
    shown = f"{number:g}" if isinstance(number, float) else f"{number}"
    return f"{shown} {noun}" if number == 1 else f"{shown} {noun}s"


def kind(value: object) -> str:
    """Return the kind of a value for an error message: None, or its class."""
    return "None" if value is None else f"of type {type(value).__name__}"
