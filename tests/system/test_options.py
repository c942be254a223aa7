"""Options: each has a help text, the same wherever it means the same; what beats what, and paths."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

from controller.vocabulary import Job, parse_jobs
from ina.cli.catalog import command_of
from ina.cli.cluster_options import ranks_on
from ina.cli.command import USAGE, Declared, Failure, Listing, Reply, Result
from ina.cli.commands import app, for_typer, load
from ina.cli.declared import check_output, flattened, read
from ina.cli.run_options import MemoryOptions
from tests.system.command import good, here, report

# --------------------------------------------------------------------- groups of options


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
        flattened(frame)(**read(flattened(frame), ["--width=6", *arguments]))
    assert capsys.readouterr().out.endswith(printed)


def test_what_a_group_needs_is_asked_for() -> None:
    app = typer.Typer()
    app.command()(for_typer(draw))
    done = CliRunner(env={"TERM": "dumb"}).invoke(app, ["a"])
    assert done.exit_code == 2
    assert "--width" in done.stderr


# --------------------------------------------------------------------- every option and argument of e


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
    --trace --tree --watch --window --workers
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


def parsed(parse: Callable[..., Mapping[str, Any]], *line: Any) -> dict[str, Any] | None:
    """Return the values that `parse` finds in a command's line; None: it refuses the line."""
    with suppress(Exception):
        return {name: None if value == () else value for name, value in parse(*line).items()}
    return None


def test_examples_are_read_without_typer_as_by_typer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own parser must refuse what it does not know, as typer then reads the line."""
    monkeypatch.setattr("ina.cli.declared.check_path", lambda *_: None)
    monkeypatch.setattr("ina.cli.commands.check_path", lambda *_: None)
    lines = [
        (flattened(found[0]), command, shlex.split(line)[name.count(" ") + 1 :])
        for name, command in commands()
        for line in re.findall(rf"^ *{name}(?![^ \n])[^<>|&\n]*", command.epilog or "", re.MULTILINE)
        if (found := command_of(name.split()[1:])) is not None
    ]
    assert len(lines) > 180
    for own, command, words in lines:
        theirs = parsed(lambda of, words: of.make_context("", [*words]).params, command, words)
        assert parsed(read, own, words) == theirs is not None, words


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
    Accept Allocate Allow Append Ask Assume Attach Bind Capture Check Choose Compare Compile Compute
    Connect Control Corrupt Decide Define Delay Deliver Divide Drain Draw Duplicate Encode Examine
    Exchange Exit Expect Explain Fail Fill Find Forward Generate Give Group Hold Impair Interpret Keep
    Learn Let Limit List Listen Load Log Lose Make Match Measure Meet Minimise Model Name Place
    Preprocess Present Print Process Put Queue Reach Read Refresh Refuse Reload Remove Reorder Replace
    Report Request Require Restore Retry Round Run Scale Schedule Search Seed Send Serve Set Share Show
    Simulate Start Stop Submit Sum Take Try Use Wait Watch Write
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


# --------------------------------------------------------------------- machines and ranks of `ina run


@pytest.mark.parametrize(
    ("text", "workers", "machines", "ranks"),
    [
        ("a,b", None, ("a", "b"), ((0,), (1,))),
        ("a:2,b", None, ("a", "b"), ((0, 1), (2,))),
        ("a,b", 5, ("a", "b"), ((0, 1, 2), (3, 4))),
        ("a:2,b:2,c:2", 3, ("a", "b"), ((0, 1), (2,))),
    ],
)
def test_ranks_are_consecutive_on_each_machine(
    text: str, workers: int | None, machines: tuple[str, ...], ranks: tuple[tuple[int, ...], ...]
) -> None:
    found = ranks_on(text, workers)
    assert (found.machines, found.ranks) == (machines, ranks)


def test_a_file_has_a_line_for_each_machine(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("# two racks\na slots=2\n\nb  # one rank\nc:3\n")
    found = ranks_on(str(tmp_path / "hosts"), None)
    assert (found.machines, found.size, found.several) == (("a", "b", "c"), 6, True)


@pytest.mark.parametrize(
    ("text", "workers", "said"),
    [
        ("a:2,b:2", 5, "-np 5: the machines of --hosts have room for 4 ranks"),
        ("a,a", None, "machine 'a' is given twice"),
        ("a slots=x", None, "want NAME, NAME:RANKS or NAME slots=RANKS"),
    ],
)
def test_what_is_wrong_is_said(text: str, workers: int | None, said: str) -> None:
    with pytest.raises(Failure, match=said):
        ranks_on(text, workers)


# --------------------------------------------------------------------- options beside a job file


KEYS = {
    "slots": (16, 32),
    "window": (8, 24),
    "preempt": (False, True),
    "priority": (0, 200),
    "congestion": ("fixed", "aimd"),
    "numbers": ("exponent", "fixed"),
}
"""Two values of each key of the file that is an option too; the first of a choice is its default."""
SAYS = """
[[job]]
name = "silent"
workers = 1
command = "true"

[[job]]
name = "default"
workers = 1
command = "true"
window = 8
preempt = false
congestion = "fixed"
numbers = "exponent"

[[job]]
name = "other"
workers = 1
command = "true"
window = 24
preempt = true
congestion = "aimd"
numbers = "fixed"
"""
OF_FILE = {
    "silent": (None, False, "fixed", "exponent"),
    "default": (8, False, "fixed", "exponent"),
    "other": (24, True, "aimd", "fixed"),
}


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("said", [None, 0, 1])
@pytest.mark.parametrize("given", [None, 0, 1])
def test_an_option_that_is_given_overrides_and_no_other(
    key: str, said: int | None, given: int | None
) -> None:
    line = "" if said is None else f"{key} = {json.dumps(KEYS[key][said])}"
    (entry,) = parse_jobs(f"[[job]]\nworkers = 1\n{line}")
    option = None if given is None else KEYS[key][given]
    found = MemoryOptions(**{key: option}).of(entry)  # type: ignore[arg-type]
    default = getattr(Job(name="", workers=1), key)
    expected = default if said is None else KEYS[key][said]
    assert getattr(found, key) == (expected if given is None else option)


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ((), OF_FILE),
        (
            ("--preempt", "--congestion", "a2tp", "--numbers", "fixed", "--window", 32),
            dict.fromkeys(OF_FILE, (32, True, "a2tp", "fixed")),
        ),
        (
            ("--no-preempt", "--congestion", "fixed", "--numbers", "exponent"),
            {name: (window, False, "fixed", "exponent") for name, (window, *_) in OF_FILE.items()},
        ),
    ],
    ids=["none", "all", "defaults"],
)
def test_run_takes_jobs_as_the_file_says_unless_options_are_given(
    options: tuple[object, ...], wanted: dict[str, tuple[object, ...]], write_file: Callable[[str, str], Path]
) -> None:
    file = write_file("jobs.toml", SAYS)
    jobs = report("run", "--program", "shared", "--lanes", 32, "--jobs", file, *options)["setup"]["jobs"]
    keys = ("window", "preempt", "congestion", "numbers")
    assert {name: tuple(job[key] for key in keys) for name, job in jobs.items()} == wanted


@pytest.mark.parametrize(
    ("options", "wanted"), [((), (64, 16, 1024)), (("--slots", 32), (32, 32, 32))], ids=["none", "slots"]
)
def test_an_exclusive_job_has_the_slots_of_the_option_if_given(
    options: tuple[object, ...], wanted: tuple[int, ...], tmp_path: Path
) -> None:
    """Named, from a window, and neither."""
    file = tmp_path / "jobs.toml"
    job = "[[job]]\nworkers = 1\ncommand = 'true'\n"
    file.write_text(f"{job}slots = 64\n{job}window = 8\n{job}")
    jobs = report("run", "--lanes", 32, "--jobs", file, *options)["setup"]["jobs"]
    assert tuple(job["slots"] or 1024 for job in jobs.values()) == wanted


# --------------------------------------------------------------------- files and directories that com


PATHS = [
    (f"{name} {parameter.opts[0]}", command, parameter, option)
    for name, command, parameter, option in declared(Path)
    if option.parser is None
]


def refused(command: Any, parameter: Any, path: Path) -> str:
    """Return why a path is refused, which is told as wrong usage."""
    context = command.context_class(command, info_name=command.name)
    given = [str(path)] if parameter.multiple or parameter.nargs == -1 else str(path)
    with pytest.raises(Failure) as failure:
        parameter.process_value(context, given)
    assert failure.value.exit_code == USAGE
    return str(failure.value)


def test_what_a_command_reads_has_to_be_there_and_what_it_writes_can_be_made(tmp_path: Path) -> None:
    """Some commands ended with 1 and others with 2, some after they had worked for minutes."""
    (tmp_path / "file").touch()
    reading = {where for where, _, _, option in PATHS if not option.writable}
    assert len(reading) > 90
    assert {"ina run --jobs", "ina compile -I", "ina trace captures", "ina run --tls-ca"} <= reading
    assert len(PATHS) - len(reading) > 25
    for where, command, parameter, declaration in PATHS:
        option = f"{parameter.opts[0]} " if parameter.opts[0].startswith("-") else ""
        for path in (tmp_path / "file" / "below", tmp_path / "none"):
            if where in reading:
                why = "Not a directory" if path.parent.name == "file" else "No such file or directory"
                assert refused(command, parameter, path) == f"{option}{path}: {why}", where
            elif path.name == "below" and not declaration.exists:
                assert f"{option}{path}: " in refused(command, parameter, path), where


@pytest.mark.parametrize(
    "arguments",
    [
        ("compile", "none.p4"),
        ("compile", "--p4info=none.p4/x", "none.p4"),
        ("run", "--program", "none.p4", "--", "true"),
        ("sim", "examples/sim.toml", "--program", "none.p4"),
        ("soak", "--program", "none.p4"),
        ("stf", "none.p4", __file__),
        ("sim", "examples/three_jobs.toml", "--cluster", "none.toml"),
        ("submit", "none.toml", "--controller", "unix:/none"),
        ("experiment", "none.py"),
        ("topo", "show", "none.yaml"),
        ("schedule", "simulate", "--policy", "none.py:Policy"),
    ],
)
def test_files_that_are_named_in_another_way_have_to_be_there_as_well(arguments: tuple[str, ...]) -> None:
    done = here(*arguments, status=USAGE)
    assert "none." in done.stderr
    assert "Traceback" not in done.stderr
    if "none.p4" in arguments:
        assert done.stderr == "ina: none.p4: No such file or directory\n"


def test_a_file_is_made_with_the_directories_above_it(tmp_path: Path) -> None:
    made = tmp_path / "new" / "deep" / "exclusive.c"
    good("compile", "exclusive", "--lanes", 32, "-o", made)
    assert "#include" in made.read_text()


def test_outputs_that_cannot_be_are_refused_before_the_work(tmp_path: Path) -> None:
    file, folder = tmp_path / "file", tmp_path / "folder"
    file.touch()
    folder.mkdir()
    for path, directory, why in (
        (file, True, "not a directory"),
        (folder, False, "a directory"),
        (file / "under", False, f"{file} is not a directory"),
        (file / "far" / "under", True, f"{file} is not a directory"),
        (tmp_path / ("x" * 300), False, "File name too long"),
    ):
        with pytest.raises(Failure) as caught:
            check_output("--output ", path, directory=directory)
        assert str(caught.value) == f"--output {path}: {why}"
    for path, directory in (
        (file, False),
        (folder, True),
        (folder / "new" / "deep", True),
        (Path("x"), False),
    ):
        check_output("--output ", path, directory=directory)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.parametrize("name", ["new", "old"])
def test_a_directory_that_may_not_be_written(name: str, tmp_path: Path) -> None:
    """A file that is there already could not be replaced either."""
    (tmp_path / "old").touch()
    tmp_path.chmod(0o500)
    with pytest.raises(Failure, match=f"no permission to write to {tmp_path}"):
        check_output("--output ", tmp_path / name)
    tmp_path.chmod(0o700)
