"""Every option and argument of every command has a help text, and the same one wherever it means the same."""

from __future__ import annotations

import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, get_args

import pytest
import typer
from typer.main import get_command

from ina.cli.commands import app, load

# Options that mean different things, or have different defaults or limits, at different commands.
DIFFERENT = frozenset(
    re.findall(
        r"\S+",
        """
    --all --baseline --cluster --cpus-per-gpu --delay --device-id --duration --explain --format
    --gpus --hosts --interface --iterations --jobs --json --lanes --launch-with --link-loss --listen
    --log --loss --machine --memory --metrics-port -n
    --name -np -o --output --p4runtime --packets --pcap --placement --plot --policy --port --port-kind
    --preempt --processes --program --queue --rate --rounds --routing --runner
    --seed --seeds --size --slots --state --switch --switch-ip --tls-ca --tls-cert
    --threads --trace --tree --watch --window --workers
    """,
    )
)


def commands(group: Any = None, path: str = "ina") -> Iterator[tuple[str, Any]]:
    """Yield every command with what people type."""
    for name, later in (group or get_command(app)).commands.items():
        place = getattr(inspect.unwrap(later.callback), "place", None) if later.callback else None
        command = load(name, place) if place else later
        if hasattr(command, "commands"):
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", command


def test_every_option_and_argument_has_a_help_text() -> None:
    found = list(commands())
    assert len(found) > 40
    assert [
        f"{name} {parameter.opts[0]}"
        for name, command in found
        for parameter in command.params
        if not (getattr(parameter, "help", None) or "").strip()
    ] == []


def test_an_option_has_one_help_text_wherever_it_means_the_same() -> None:
    texts: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, command in commands():
        for parameter in command.params:
            for option in parameter.opts:
                if option.startswith("-"):
                    texts[option][parameter.help].append(name)
    several = {option: dict(by_text) for option, by_text in texts.items() if len(by_text) > 1}
    assert {option: several[option] for option in several.keys() - DIFFERENT} == {}
    assert sorted(DIFFERENT - several.keys()) == [], "they have one text now: take them off the list"


def kinds(of: Any) -> set[Any]:
    """Return the types in an annotation."""
    return {of, *(kind for part in get_args(of) for kind in kinds(part))}


def declared(kind: type) -> Iterator[tuple[str, Any, Any, Any]]:
    """Yield each option and argument of a type: its command's name, command, itself, and its declaration."""
    for name, command in commands():
        annotations = inspect.signature(command.callback).parameters
        for parameter in command.params:
            if parameter.name in annotations:  # all but --help
                of, option, _ = get_args(annotations[parameter.name].annotation)
                if kind in kinds(of):
                    yield name, command, parameter, option


def test_no_option_takes_nan() -> None:
    """NaN passes a comparison with any limit: --minutes nan once ran for ever."""
    numbers = [(name, command, parameter) for name, command, parameter, _ in declared(float)]
    assert len(numbers) > 60
    for name, command, parameter in numbers:
        context = command.context_class(command, info_name=name)
        with pytest.raises(typer.BadParameter, match=r"'nan' is not a number|Input should be"):
            parameter.process_value(context, "nan")


VERBS = frozenset(
    re.findall(
        r"\S+",
        """
    Accept
    Allocate Append Ask Assume Attach Capture Check Choose Compare Compile Compute Connect Control Corrupt
    Decide Define Delay Deliver Divide Draw Duplicate Encode Examine Exit Expect Explain Fill Find Generate
    Give Group Hold Impair Interpret Keep Learn Let Limit List Listen Load Log Lose Make Match Measure Meet
    Minimise Model Name Place Preprocess Present Print Put Queue Reach Read Reload Remove Reorder Replace
    Refuse Report Require Restore Retry Round Run Scale Schedule Search Seed Send Serve Set Share Show
    Simulate Start Stop Submit Sum Try Use Wait Watch Write
    """,
    )
)
"""What a help text may begin with; a new verb is added here by whoever reads the new text once more."""


def test_a_help_text_begins_with_an_imperative_and_ends_with_a_full_stop() -> None:
    wrong = []
    for name, command in commands():
        for parameter in command.params:
            text = re.sub(r"^(With|Without) --[^:]*: ", "", parameter.help)
            verb = text.split()[0]
            if verb.capitalize() not in VERBS or not text.endswith("."):
                wrong.append(f"{name} {parameter.opts[0]}: {text}")
    assert wrong == []
