"""Architectures: a program's packages say which it is for, and each is a module or folder here.

`packages` has what they have in common: packages, their blocks, and the parameters of these.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from softswitch.compiler.frontend import ast
    from softswitch.compiler.lowering import types as t
    from softswitch.compiler.lowering.unit import Body, Unit
    from softswitch.compiler.lowering.values import ExternDef, Object, Value

Fields = dict[str, Any]
"""Fields of `ir.Program`."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """What an architecture knows, and `lower` asks.

    Attributes:
        checks: The package whose arguments `lower` checks itself: its name and number of blocks.
        parts: The packages that this package is made of.
        make_object: Makes an instance of an extern that programs for all architectures do not have.
        call_object: Lowers a call of a method of such an instance.
        call_function: Lowers a call of such an extern function.
        check: Raises Unsupported if a package is none of the architecture's.
        lower: Lowers the blocks of ``main``. Returns a function that gives what they became, once all else
            is checked; its argument refuses registers that a packet meets twice.
    """

    checks: tuple[str, int] | None
    parts: tuple[str, ...]
    make_object: Callable[[Body, ExternDef, ast.NamedType, ast.Instantiation, str], Object]
    call_object: Callable[[Body, Object, ast.Prototype, ast.Call, Mapping[str, t.Type]], Value]
    call_function: Callable[[Body, ast.Prototype, ast.Call, str], Value]
    check: Callable[[Unit, ast.Instantiation], None]
    lower: Callable[[Unit, ast.Instantiation], Callable[[bool], Fields]]
