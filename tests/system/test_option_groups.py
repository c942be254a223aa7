"""Groups of options: on the command line their fields stand in their place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from ina.cli.commands import for_typer
from ina.cli.declared import Declared, call
from ina.cli.errors import Failure
from ina.cli.plain import Listing, Reply, Result


@dataclass(frozen=True, kw_only=True)
class Size:
    """How large."""

    width: Annotated[int, Declared(help="Across.")]
    height: Annotated[int | None, Declared(help="Up.")] = None


@dataclass(frozen=True, kw_only=True)
class Flat(Size):
    """The same, with a height of its own."""

    height: Annotated[int | None, Declared(help="Up.")] = 1


def draw(*, name: Annotated[str, Declared(argument=True)], size: Size, json: bool = False) -> None:
    print(name, size, json)


@dataclass(frozen=True, kw_only=True)
class Picture:
    """Settings that contain others."""

    title: Annotated[str, Declared(help="Above it.")] = ""
    size: Flat


def frame(picture: Picture) -> Reply:
    return Reply(
        Result("frame", {}, {"wide": picture.size.width, "ratio": float("inf")}, unused_keys=["colour"]),
        [Listing("sizes", ["", "cm"], [("width", picture.size.width)]), f"{picture.title}\x1b[31m"],
        "too wide" if picture.size.width > 5 else "",
    )


def draw_flat(*, size: Flat, width_of: Annotated[str, Declared()] = "") -> None:
    print(size, width_of)


@pytest.mark.parametrize(
    ("command", "arguments", "printed"),
    [
        (draw, ["a", "--width", "3"], "a Size(width=3, height=None) False\n"),
        (draw, ["--height", "4", "--json", "--width", "3", "b"], "b Size(width=3, height=4) True\n"),
        (draw_flat, ["--width", "3"], "Flat(width=3, height=1) \n"),
    ],
)
def test_a_command_gets_its_groups_made(command: object, arguments: list[str], printed: str) -> None:
    app = typer.Typer()
    app.command()(for_typer(command))  # type: ignore[arg-type]
    done = CliRunner().invoke(app, arguments)
    assert (done.exit_code, done.stdout) == (0, printed)


@pytest.mark.parametrize(
    ("arguments", "printed"),
    [
        (
            ["--json"],
            '{\n  "name": "frame",\n  "setup": {\n    "unused_keys": [\n      "colour"\n    ]\n  },\n'
            '  "metrics": {\n    "wide": 6,\n    "ratio": null\n  }\n}\n',
        ),
        (["--title", "A"], "│ width │  6 │\n└───────┴────┘\nA\\x1b[31m\n"),
    ],
)
def test_a_reply_is_an_object_or_parts_and_then_a_failure(
    arguments: list[str], printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Failure, match="too wide"):
        call(frame, ["--width=6", *arguments])
    assert capsys.readouterr().out.endswith(printed)


def test_what_a_group_needs_is_asked_for() -> None:
    app = typer.Typer()
    app.command()(for_typer(draw))
    done = CliRunner(env={"TERM": "dumb"}).invoke(app, ["a"])
    assert done.exit_code == 2
    assert "--width" in done.stderr
