"""Declarations of options, from which typer's options, help, and a parser without typer are made.

A command is a function. Each of its parameters is an option, or *settings*: a frozen dataclass whose fields
are options. Several commands can share settings, and settings can contain other settings. An option has a
type, a default and, as `Declared`, names and help:

    loss: Annotated[float, Declared(help="Lose each frame with this probability.")] = 0.0

`read` parses the options of a command without typer, which takes longer to load than many commands run. For
help, and to explain wrong usage, `ina.cli.commands` passes the same declarations to typer.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import math
import os
import types
from collections import deque
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Union, get_args, get_origin, get_type_hints

from ina.cli.command import USAGE, Declared, Failure, Json, Reply, failing_at, print_json, refuse

_KEYWORD = inspect.Parameter.KEYWORD_ONLY


def flattened(command: Callable[..., Reply | None]) -> Callable[..., None]:
    """Return a function with a keyword parameter for each option of a command, also for options in settings.

    The function calls the command, and prints the `Reply` that the command returns. A command that returns a
    `Reply` gets the option ``--json``, unless it declares this option itself. The function raises Failure for
    an infinite number, and for NaN.
    """
    parameters = _options(command)
    if _hints(command)["return"] is Reply and all(each.name != "json" for each in parameters):
        parameters.append(inspect.Parameter("json", _KEYWORD, default=False, annotation=Json))

    @functools.wraps(command)
    def call(**given: Any) -> None:
        for each in parameters:
            if isinstance(value := given[each.name], float) and not math.isfinite(value):
                raise Failure(f"{next(iter(_Parameter.of(each).words))} {value}: want a finite number", USAGE)
        answer = command(**_arguments(command, given))
        if answer is not None:
            print_reply(answer, json=given["json"])

    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    call.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return call


def print_reply(reply: Reply, *, json: bool) -> None:
    """Print a reply, as a JSON object or as its parts. Raises Failure if the reply has a `failure`."""
    if json:
        print_json(reply.found)
    else:
        from ina.cli.output import show  # tables need a library that many processes never import

        show(reply.parts)
    if reply.failure:
        raise Failure(reply.failure)


@functools.cache
def _hints(of: Callable[..., Any]) -> dict[str, Any]:
    """Return the annotations of a command's parameters or of settings' fields; cached, because it is slow."""
    return get_type_hints(of, include_extras=True)


def _options(of: Callable[..., Any]) -> list[inspect.Parameter]:
    """Return all options of a command or of settings, in the order of declaration."""
    found = []
    for parameter in inspect.signature(of).parameters.values():
        kind = _hints(of)[parameter.name]
        if dataclasses.is_dataclass(kind):
            found += _options(kind)  # type: ignore[arg-type]  # a class is callable
        else:
            found.append(parameter.replace(kind=_KEYWORD, annotation=kind))
    return found


def _arguments(of: Callable[..., Any], given: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments for a call of a command or a settings class, from the values of all options."""
    hints = _hints(of)
    return {
        name: hints[name](**_arguments(hints[name], given))
        if dataclasses.is_dataclass(hints[name])
        else given[name]
        for name in inspect.signature(of).parameters
    }


# --------------------------------------------------------------------------- files that options name


def check_path(declared: Declared, option: str, path: Path) -> None:
    """Raise Failure, as for wrong usage, if the path that an option names cannot be used.

    An output path is declared with `writable`, and an output directory has the metavar DIR. All other paths
    must exist. The value of an option with a `parser` is not checked: it may be no path.

    Args:
        declared: The option's declaration.
        option: The option's name and a space, or "" for an argument.
        path: The option's value.
    """
    if "parser" in declared.keywords:
        return
    if not declared.keywords.get("writable"):
        with failing_at(f"{option}{path}", OSError):
            path.stat()
    elif not declared.keywords.get("exists"):
        check_output(option, path, directory=declared.keywords.get("metavar") == "DIR")


def check_output(option: str, path: Path, *, directory: bool = False) -> None:
    """Raise Failure if `path` cannot be written as a file, or as a directory of files.

    `option` is the option's name and a space, for messages.
    """
    with failing_at(f"{option}{path}", OSError):
        refuse(
            path.exists() and path.is_dir() != directory,
            f"{option}{path}: {'not a directory' if directory else 'a directory'}",
        )
        existing = next(each for each in (path.absolute(), *path.absolute().parents) if each.exists())
    refuse(not path.exists() and not existing.is_dir(), f"{option}{path}: {existing} is not a directory")
    beside = (
        existing.resolve().parent if existing.is_file() else existing
    )  # a new file in the directory replaces a file
    for each in (existing, beside):
        refuse(not os.access(each, os.W_OK), f"{option}{path}: no permission to write to {each}")


# --------------------------------------------------------------------------- command lines without typer


@dataclass(frozen=True, slots=True)
class _Parameter:
    """An option of a command, as the parser reads it."""

    name: str
    kind: Any
    """Type of one value, without None."""
    many: bool
    declared: Declared

    @classmethod
    def of(cls, parameter: inspect.Parameter) -> _Parameter:
        """Return the option that a parameter of a flattened command declares."""
        kind, declared = get_args(parameter.annotation)
        if get_origin(kind) in (types.UnionType, Union):
            (kind,) = [each for each in get_args(kind) if each is not types.NoneType]
        many = get_origin(kind) is list
        return cls(parameter.name, get_args(kind)[0] if many else kind, many, declared)

    @property
    def is_argument(self) -> bool:
        """Whether the value stands on the command line without a name."""
        return bool(self.declared.keywords.get("argument"))

    @property
    def words(self) -> dict[str, bool]:
        """The option's names on a command line, such as --json. For a flag: the value that each name sets."""
        own = f"--{self.name.replace('_', '-')}"
        names = self.declared.names or (f"{own}/--no-{own[2:]}" if self.kind is bool else own,)
        return {word: not at for name in names for at, word in enumerate(name.split("/"))}

    def value(self, word: str, text: str) -> Any:
        """Convert `text`, the value of the option named `word`. Raises Failure if the value is invalid."""
        choices = get_args(self.kind)  # of a Literal
        try:
            value = choices[choices.index(text)] if choices else self.kind(text)
        except ValueError:
            want = {int: "a whole number", float: "a number"}.get(self.kind, f"one of {', '.join(choices)}")
            raise Failure(f"{word} {text!r}: want {want}", USAGE) from None
        if self.kind in (int, float):
            least = self.declared.keywords.get("min", -math.inf)
            most = self.declared.keywords.get("max", math.inf)
            if not least <= value <= most:  # NaN is in no range
                bounds = [f"from {least}"] * (least > -math.inf) + [f"to {most}"] * (most < math.inf)
                raise Failure(f"{word} {text}: want a number{' '.join(['', *bounds])}", USAGE)
        if self.kind is Path:
            check_path(self.declared, f"{word} " if word else "", value)
        return value


def read(command: Callable[..., None], line: Sequence[str]) -> dict[str, Any]:
    """Parse `line`; return the values of all parameters of a flattened command.

    Raises Failure for wrong usage.
    """
    signature = inspect.signature(command).parameters
    parameters = [_Parameter.of(each) for each in signature.values()]
    by_word = {word: each for each in parameters if not each.is_argument for word in each.words}
    values: dict[str, Any] = {}
    arguments: list[str] = []
    left = deque(line)
    while left:
        word, equals, text = left.popleft().partition("=")
        if word == "--" and not equals:
            arguments += left
            break
        if word[:1] != "-" or word == "-":
            arguments.append(f"{word}{equals}{text}")
            continue
        if word not in by_word and word[:2] in by_word:  # -n4
            word, equals, text = word[:2], "=", word[2:] + equals + text
        found = by_word.get(word) or _no_option(word, by_word)
        refuse(found.kind is bool and equals, f"{word} takes no value")
        if found.kind is bool:
            values[found.name] = found.words[word]
            continue
        refuse(not equals and not left, f"{word}: give a value")
        value = found.value(word, text if equals else left.popleft())
        values[found.name] = [*values.get(found.name, ()), value] if found.many else value
    for each in parameters:
        if each.is_argument and arguments:
            taken = [each.value("", text) for text in (arguments if each.many else arguments[:1])]
            values[each.name], arguments = taken if each.many else taken[0], arguments[len(taken) :]
        variable = each.declared.keywords.get("envvar", "")
        if each.name not in values and (text := os.environ.get(variable, "")):
            values[each.name] = each.value(variable, text)
        values.setdefault(each.name, signature[each.name].default)
        if values[each.name] is inspect.Parameter.empty:
            raise Failure(f"{next(iter(each.words))} is missing", USAGE)
    if arguments:
        _no_option(arguments[0], by_word)
    return values


def _no_option(word: str, known: Collection[str]) -> NoReturn:
    near = [f" (did you mean {each}?)" for each in difflib.get_close_matches(word, known, n=1)]
    raise Failure(f"no such option: {word}{''.join(near)}", USAGE)
