"""The commands of ``ina`` as typer's: for help, for groups, and for messages about wrong usage.

Each command is registered with its name and one line of help, and imported only when it is needed.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Final, get_args

import typer
from typer.core import TyperGroup
from typer.main import get_command

from ina.cli.catalog import COMMANDS, GROUPS, found_at
from ina.cli.declared import check_path, flattened


class Group(TyperGroup):
    """A group of subcommands that were registered with `register`."""

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        """Return the subcommand that `args` name, after its import."""
        name, command, rest = super().resolve_command(ctx, args)
        if name and command and command.callback:
            command = load(name, inspect.unwrap(command.callback).place)
        return name, command, rest


def group(name: str, text: str, epilog: str | None = None) -> typer.Typer:
    """Return a group of subcommands; `text` and `epilog` are its help."""
    made = typer.Typer(
        name=name,
        cls=Group,
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        help=text,
        epilog=epilog,
    )
    made.callback()(_nothing)  # without a callback, typer replaces a group of one command by this command
    return made


def _nothing() -> None:
    """Do nothing: typer calls this before a subcommand of a group."""


def register(
    app: typer.Typer, name: str, place: str | typer.Typer, line: str, *, panel: str | None = None
) -> None:
    """Add a subcommand, which is imported only when it runs.

    Args:
        app: the group to which the subcommand belongs.
        name: name of the subcommand on the command line.
        place: ``module:function`` or ``module:group`` in this package, or a group; a function's docstring is
            the subcommand's help.
        line: the subcommand's line on the group's help page: the first paragraph of its docstring.
        panel: the heading on that page under which the line is.
    """

    def later() -> None:
        """Do nothing: a placeholder for the command until it is imported."""

    later.place = place  # type: ignore[attr-defined]
    app.command(name, help=line, rich_help_panel=panel)(later)


def load(name: str, place: str | typer.Typer) -> Any:
    """Import the function or group that `place` names, and return it as a command of typer.

    The command's options are checked as each option's `Declared` requires.
    """
    app = found_at(place) if isinstance(place, str) else place
    if isinstance(app, typer.Typer):
        call = None if app.registered_callback is None else app.registered_callback.callback
    else:
        call = for_typer(app)
        text, examples, rest = unfold(app.__doc__ or "").partition("Examples:")
        app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
        app.command(name, help=text.strip(), epilog=examples + rest)(call)
    command = get_command(app)
    declared = inspect.signature(call or _nothing).parameters
    for parameter in command.params:
        if parameter.name in declared:  # all but --help
            parameter.callback = functools.partial(_checked, declared[parameter.name].annotation)
    return command


def for_typer(command: Callable[..., Any]) -> Callable[..., None]:
    """Return a function that calls the command, with annotations from which typer makes options."""
    call = flattened(command)
    signature = inspect.signature(call)
    parameters = [p.replace(annotation=_translated(p.annotation)) for p in signature.parameters.values()]
    call.__annotations__ = {p.name: p.annotation for p in parameters}
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return call


def _translated(annotation: Any) -> Any:
    if not get_args(annotation):  # typer's own context
        return annotation
    kind, declared = get_args(annotation)
    keywords = {**declared.keywords}
    make: Any = typer.Argument if keywords.pop("argument", False) else typer.Option
    return Annotated[kind, make(*declared.names, **keywords), declared]


def _checked(annotation: Any, context: Any, parameter: Any, value: Any) -> Any:
    """Return an option's value. Raises Failure for unusable paths, and BadParameter for NaN.

    NaN would pass typer's comparisons with limits.
    """
    *_, declared = get_args(annotation)
    option = f"{parameter.opts[0]} " if parameter.param_type_name == "option" else ""
    for each in value if isinstance(value, list | tuple) else () if value is None else (value,):
        if isinstance(each, float) and math.isnan(each):
            raise typer.BadParameter("'nan' is not a number.", ctx=context, param=parameter)
        if isinstance(each, Path):
            check_path(declared, option, each)
    return value


def unfold(docstring: str) -> str:
    """Return a docstring with each paragraph on one line, because terminals break lines themselves."""
    paragraphs = inspect.cleandoc(docstring).replace("Examples:\n", "Examples:\n\n").split("\n\n")
    return "\n\n".join(
        ("  " if paragraph.startswith(" ") else "") + " ".join(paragraph.split()) for paragraph in paragraphs
    )


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version  # takes a quarter of the start

        print(f"ina {version('ina')}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", is_eager=True, callback=_show_version, help="Print the version and exit."),
    ] = False,
) -> None:
    pass


app: Final = group(
    "ina",
    "Aggregate gradients of training jobs inside P4 switches.",
    epilog="Exit codes: 0 success, 1 the work failed, 2 wrong usage, 3 compile error, 4 internal "
    "error, 128+N ended by signal N.",
)
app.callback()(_options)

for _panel, _name, *_rest in COMMANDS:
    if _rest:
        register(app, _name, *_rest, panel=_panel)
        continue
    _text, _subcommands = GROUPS[_name]
    _group = group(_name, _text)
    register(app, _name, _group, _text, panel=_panel)
    for _subcommand in _subcommands:
        register(_group, *_subcommand)
