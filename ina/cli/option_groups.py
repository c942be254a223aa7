"""Groups of options: a dataclass whose fields are options, defined once for all commands that have them.

A command takes a group as one parameter. On its help page and on the command line the group's fields replace
that parameter.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, get_type_hints

_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def flattened(command: Callable[..., None]) -> Callable[..., None]:
    """Return a command with the fields of its groups as parameters, as typer needs it."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: kind for name, kind in hints.items() if dataclasses.is_dataclass(kind)}
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name in groups:
            parameters += _fields(groups[parameter.name])
        else:
            parameters.append(parameter.replace(kind=_KEYWORD, annotation=hints[parameter.name]))

    @functools.wraps(command)
    def call(**given: Any) -> None:
        made = {}
        for name, kind in groups.items():
            made[name] = kind(**{field.name: given.pop(field.name) for field in dataclasses.fields(kind)})
        command(**given, **made)

    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def _fields(group: Any) -> list[inspect.Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        inspect.Parameter(
            field.name,
            _KEYWORD,
            default=inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default,
            annotation=hints[field.name],
        )
        for field in dataclasses.fields(group)
    ]
