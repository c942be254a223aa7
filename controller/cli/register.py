"""How subcommands are registered: their help is the function's docstring, laid out as it is displayed."""

from __future__ import annotations

import inspect
from collections.abc import Callable

import typer


def register(
    app: typer.Typer, name: str, command: Callable[..., None], epilog: str, *, panel: str | None = None
) -> None:
    """Add a subcommand; `panel` is the group that ``--help`` lists it in."""
    # Typer keeps the line breaks of the source, which are not those of a terminal.
    paragraphs = inspect.cleandoc(command.__doc__ or "").split("\n\n")
    text = "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)
    app.command(name, help=text, epilog=epilog, rich_help_panel=panel)(command)
