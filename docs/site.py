"""Hooks of MkDocs: links to files of the repository, and reference text made from the code.

A link that leads out of docs/ has no page on the site, and the project has no address on the web: the site
shows the link's text, and the file's path in the clone. A comment of a page, such as ``<!-- commands: run sim
-->`` or ``<!-- http api -->``, is replaced by what the code says of its commands or of its HTTP API.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from ina.api.app import app as service_api
from ina.cli.commands import app, load

ROOT = Path(__file__).resolve().parents[1]


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Replace comments and links of a page that only the site shows otherwise."""
    folder = Path(page.file.abs_src_path).parent

    def plain(found: re.Match[str]) -> str:
        text, target = found.groups()
        path = os.path.relpath(folder / target.partition("#")[0], ROOT)
        if path.startswith("docs/"):
            return found[0]
        return text if path in text else f"{text} (`{path}`)"

    markdown = re.sub(r"\[([^\]]+)\]\((\.\.?/[^)\s]+)\)", plain, markdown)
    markdown = re.sub(r"<!-- commands: (.*?) -->", lambda found: commands(found[1].split()), markdown)
    return re.sub("<!-- http api -->", lambda _: requests(), markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Drop the colons that docstrings put before a block of code."""
    return html.replace("<p>::</p>", "").replace("::</p>", ":</p>")


def commands(names: list[str]) -> str:
    """Return the help of commands and of their subcommands."""
    places = {command.name: command.callback.place for command in app.registered_commands}
    return "\n\n".join(text for name in names for text in help_of(f"ina {name}", load(name, places[name])))


def help_of(name: str, command: Any) -> Iterator[str]:
    """Yield the sections of a command and of the commands below it."""
    context = click.Context(command, info_name=name)
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            _, found, _ = command.resolve_command(context, [below])
            yield from help_of(f"{name} {below}", found)
        return
    rows = [
        f"| {', '.join(f'`{name}`' for name in names(each))} | {cell(each.help)} |"
        for each in command.params
        if each.name != "help" and getattr(each, "help", None) and not getattr(each, "hidden", False)
    ]
    yield f"## {name}"
    yield text(command.help or "")
    yield f"```\n{command.get_usage(context).removeprefix('Usage: ')}\n```"
    if rows:
        yield "\n".join(["| option | meaning |", "| --- | --- |", *rows])
    if command.epilog:
        yield text(command.epilog)


def names(parameter: Any) -> list[str]:
    """Return the names of an option, or the word for an argument in the usage."""
    if parameter.param_type_name == "argument":
        return [parameter.metavar or parameter.name.upper()]
    return [*parameter.opts, *parameter.secondary_opts]


def text(written: str) -> str:
    """Return a help text as Markdown: the signs of the terminal's markup mean nothing there."""
    return re.sub(r"\\\[", "[", written).replace("<", "&lt;").replace("*", r"\*")


def cell(written: str) -> str:
    """Return a text for a cell of a table."""
    return text(" ".join(written.split())).replace("|", r"\|")


def requests() -> str:
    """Return the requests of the controller's HTTP API, and the answers' keys."""
    without = SimpleNamespace(ledger=SimpleNamespace(now_s=0.0))
    api = service_api(without, gate=None, hosts=None).openapi()  # type: ignore[arg-type]
    parts = []
    for path, methods in api["paths"].items():
        for method, request in methods.items():
            parts.append(f"### {method.upper()} {path}\n\n{text(request.get('description', ''))}")
            rows = [
                f"| `{each['name']}` | {each['in']} | {cell(each.get('description', ''))} |"
                for each in request.get("parameters", [])
            ]
            if rows:
                parts.append("\n".join(["| parameter | in | meaning |", "| --- | --- | --- |", *rows]))
            done, answer = next((code, each) for code, each in request["responses"].items() if code < "300")
            parts.append(f"Answers {done}{shape(answer)}.")
    parts.append("## Answers and bodies")
    for name, schema in api["components"]["schemas"].items():
        rows = [
            f"| `{key}` | {kind(value)} | {cell(value.get('description', ''))} |"
            for key, value in schema.get("properties", {}).items()
        ]
        parts.append(f"### {name}\n\n{text(schema.get('description', ''))}")
        parts.append("\n".join(["| key | type | meaning |", "| --- | --- | --- |", *rows]))
    return "\n\n".join(parts)


def shape(answer: dict[str, Any]) -> str:
    """Return the name of an answer's schema, as a link, with "and" before it; empty: it has none."""
    schema = answer.get("content", {}).get("application/json", {}).get("schema")
    return f" and {kind(schema)}" if schema else ""


def kind(schema: dict[str, Any]) -> str:
    """Return the type of a JSON schema in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(kind(each) for each in schema["anyOf"])
    if schema.get("type") == "array":
        return f"list of {kind(schema['items'])}" if "items" in schema else "list"
    return str(schema.get("type", "any"))
