"""The interpreter: runs a program straight from its IR; `interpreter` makes the right one."""

from __future__ import annotations

from softswitch.compiler import ir
from softswitch.engine.interpreter.pipeline import Interpreter, TofinoInterpreter
from softswitch.engine.trace import Trace

__all__ = ["Interpreter", "interpreter"]


def interpreter(program: ir.Program, *, seed: int = 0, trace: Trace | None = None) -> Interpreter:
    """Return a program's interpreter; for the arguments see `Interpreter`."""
    made = TofinoInterpreter if program.tofino else Interpreter
    return made(program, seed=seed, trace=trace)
