"""Options as commands declare them, and a reader of command lines that needs no other library.

What ranks start (`ina.cli.SERVERS`) is read by `call`: the library of the command line, which other packages
may hold at a version of their own, is not there, or takes its time to load. All other command lines, and all
help, are typer's (`ina.cli.register`), from the same declarations.
"""

from __future__ import annotations

import difflib
import inspect
import math
import os
import types
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Union, get_args, get_origin

from ina.cli import paths
from ina.cli.errors import USAGE, Failure
from ina.cli.option_groups import flattened


class Declared:
    """An option, or with ``argument=True`` an argument: names and keywords of typer's."""

    def __init__(self, *names: str, **keywords: Any) -> None:
        self.names, self.keywords = names, keywords


@dataclass(frozen=True, slots=True)
class _Parameter:
    """A parameter of a command, as its option is read."""

    name: str
    kind: Any
    """Type of a value, without None."""
    many: bool
    declared: Declared

    @classmethod
    def of(cls, parameter: inspect.Parameter) -> _Parameter:
        """Read what a flattened command declares."""
        kind, declared = get_args(parameter.annotation)
        if get_origin(kind) in (types.UnionType, Union):
            (kind,) = [each for each in get_args(kind) if each is not types.NoneType]
        many = get_origin(kind) is list
        return cls(parameter.name, get_args(kind)[0] if many else kind, many, declared)

    @property
    def words(self) -> dict[str, bool]:
        """What stands for it on a command line, and the value of a flag that does."""
        own = f"--{self.name.replace('_', '-')}"
        names = self.declared.names or (f"{own}/--no-{own[2:]}" if self.kind is bool else own,)
        return {word: not at for name in names for at, word in enumerate(name.split("/"))}

    def value(self, word: str, text: str) -> Any:
        """Convert a value. Raises Failure."""
        try:
            value = self.kind(text)
        except ValueError:
            want = {int: "a whole number", float: "a number"}.get(self.kind)
            want = want or f"one of {', '.join(each.value for each in self.kind)}"
            raise Failure(f"{word} {text!r}: want {want}", USAGE) from None
        if self.kind in (int, float):
            least = self.declared.keywords.get("min", -math.inf)
            most = self.declared.keywords.get("max", math.inf)
            if not least <= value <= most:  # NaN is in no range
                bounds = [f"from {least}"] * (least > -math.inf) + [f"to {most}"] * (most < math.inf)
                raise Failure(f"{word} {text}: want a number{' '.join(['', *bounds])}", USAGE)
        if self.kind is Path:
            paths.check_declared(self.declared.keywords, f"{word} ", (value,))
        return value


def call(command: Callable[..., None], line: Sequence[str]) -> None:
    """Read the options of a command, and call it. Raises Failure for wrong usage, and what it raises."""
    flat = flattened(command)
    flat(**read(flat, line))


def read(command: Callable[..., None], line: Sequence[str]) -> dict[str, Any]:
    """Return the values of all parameters of a flattened command. Raises Failure for wrong usage."""
    signature = inspect.signature(command).parameters
    parameters = [_Parameter.of(each) for each in signature.values()]
    by_word = {word: each for each in parameters for word in each.words}
    values: dict[str, Any] = {}
    left = deque(line)
    while left:
        word, equals, text = left.popleft().partition("=")
        if word not in by_word and word[:2] in by_word:  # -n4
            word, equals, text = word[:2], "=", word[2:]
        if (found := by_word.get(word)) is None:
            near = [f" (did you mean {each}?)" for each in difflib.get_close_matches(word, by_word, n=1)]
            raise Failure(f"no such option: {word}{''.join(near)}", USAGE)
        if found.kind is bool and equals:
            raise Failure(f"{word} takes no value", USAGE)
        if found.kind is bool:
            values[found.name] = found.words[word]
            continue
        if not equals and not left:
            raise Failure(f"{word}: give a value", USAGE)
        value = found.value(word, text if equals else left.popleft())
        values[found.name] = [*values.get(found.name, ()), value] if found.many else value
    for each in parameters:
        variable = each.declared.keywords.get("envvar", "")
        if each.name not in values and (text := os.environ.get(variable, "")):
            values[each.name] = each.value(variable, text)
        values.setdefault(each.name, signature[each.name].default)
        if values[each.name] is inspect.Parameter.empty:
            raise Failure(f"{next(iter(each.words))} is missing", USAGE)
    return values
