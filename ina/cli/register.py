"""Registration of subcommands: by name and one line of help; they are imported when they run.

Importing a command can take up to a second, which other commands should not have to wait for.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
import math
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, get_args

import typer
from typer.core import TyperGroup
from typer.main import get_command

from ina.cli import paths
from ina.cli.declared import Declared
from ina.cli.option_groups import flattened
from ina.runtime.quickly import quickly


class Group(TyperGroup):
    """A group of subcommands that were registered with `register`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Import the subcommand that `args` name."""
        name, command, rest = super().resolve_command(ctx, args)
        if name and command and command.callback:
            command = _load(name, inspect.unwrap(command.callback).place)
        return name, command, rest


def group(name: str, text: str, epilog: str | None = None) -> typer.Typer:
    """Return a group of subcommands with this help."""
    return typer.Typer(
        name=name,
        cls=Group,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        help=text,
        epilog=epilog,
    )


def register(app: typer.Typer, name: str, place: str, line: str, *, panel: str | None = None) -> None:
    """Add a subcommand.

    Args:
        app: the group it belongs to.
        name: what people type.
        place: ``module:function``, or ``module:group``; a function's whole help is its docstring, and its
            examples are the module's `EPILOG`.
        line: what the group's help page says of it: the first paragraph of that docstring.
        panel: under which heading that page lists it.
    """

    def later() -> None:
        """Stand for the command until it is imported."""

    later.place = place  # type: ignore[attr-defined]
    app.command(name, help=line, rich_help_panel=panel)(later)


def _load(name: str, place: str) -> Any:
    module_name, _, attribute = place.partition(":")
    with contextlib.nullcontext() if module_name in sys.modules else quickly():
        module = importlib.import_module(module_name)
    found = getattr(module, attribute)
    if isinstance(found, typer.Typer):
        return get_command(found)
    call = _for_typer(flattened(found))
    command = get_command(_alone(name, call, module.EPILOG))
    declared = inspect.signature(call).parameters
    for parameter in command.params:
        if parameter.name and parameter.name in declared:  # all but --help
            kinds, option = _declared(declared[parameter.name].annotation)
            if float in kinds:
                parameter.callback = _a_number
            elif Path in kinds and option.parser is None:  # one with a parser may name something else
                parameter.callback = functools.partial(paths.check, option)
    return command


def _for_typer(command: Callable[..., None]) -> Callable[..., None]:
    """Return a flattened command whose options are typer's."""

    def translated(annotation: Any) -> Any:
        kind, declared = get_args(annotation)
        if not isinstance(declared, Declared):
            return annotation
        keywords = {**declared.keywords}
        make: Any = typer.Argument if keywords.pop("argument", False) else typer.Option
        return Annotated[kind, make(*declared.names, **keywords)]

    signature = inspect.signature(command)
    parameters = [p.replace(annotation=translated(p.annotation)) for p in signature.parameters.values()]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


def _declared(annotation: Any) -> tuple[set[Any], Any]:
    """Return the types in the annotation of a parameter, and its option or argument."""
    kind, option = get_args(annotation)
    kinds, left = set(), [kind]
    while left:
        kinds.add(kind := left.pop())
        left += get_args(kind)
    return kinds, option


def _a_number(context: Any, parameter: Any, value: Any) -> Any:
    """Refuse NaN, which passes every comparison with a limit, and for which no option has a meaning."""
    if isinstance(value, float) and math.isnan(value):
        raise typer.BadParameter("'nan' is not a number.", ctx=context, param=parameter)
    return value


def _alone(name: str, command: Callable[..., None], epilog: str) -> typer.Typer:
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
    app.command(name, help=unfold(command.__doc__ or ""), epilog=epilog)(command)
    return app


def unfold(docstring: str) -> str:
    """Return a docstring without the line breaks of the source, which are not those of a terminal."""
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in inspect.cleandoc(docstring).split("\n\n"))
