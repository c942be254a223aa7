"""Which program a switch runs is told by its cookie: by code, and not by the tables alone."""

from __future__ import annotations

import doctest
import json
import logging
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from controller import OtherProgram, ProgramBundle, _native, connect, plugins
from controller.errors import BadSpec, NativeMissing
from controller.p4runtime_shim.client import P4RuntimeClient
from controller.policies.grouping.matching import match
from controller.switches.programs import source_of
from p4src.messages import cookie, p4info_pb2
from p4src.messages.cookie import cookie_of
from softswitch.compiler import p4info
from softswitch.engine.cache import compile_once, preprocess_once
from softswitch.engine.switch import Switch
from softswitch.p4runtime import Service, serve
from tests.controller.conftest import LANES

FAIR = "ina.priority > slot.priority ? 1w1 : 1w0"
UNFAIR = "ina.priority >= slot.priority ? 1w1 : 1w0"
"""Evicts those of the same priority, too."""


@pytest.fixture
def empty() -> Iterator[Service]:
    with Switch({}) as switch, closing(serve(switch)) as service:
        yield service


@pytest.fixture(scope="module")
def edited(shared_bundle: ProgramBundle) -> ProgramBundle:
    text = shared_bundle.device_config.decode()
    assert text.count(FAIR) == 1
    text = text.replace(FAIR, UNFAIR)
    return ProgramBundle("shared", p4info(compile_once(text, name="shared")), text.encode())


def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Note what controllers ask of a pipeline config from now on."""
    kinds: list[str] = []
    config = P4RuntimeClient._config

    def noted(self: P4RuntimeClient, what: Any) -> Any:
        kinds.append(["ALL", "COOKIE_ONLY", "P4INFO_AND_COOKIE", "DEVICE_CONFIG_AND_COOKIE"][what])
        return config(self, what)

    monkeypatch.setattr(P4RuntimeClient, "_config", noted)
    return kinds


def test_examples_are_true() -> None:
    tried = doctest.testmod(cookie)
    assert tried.attempted > 0
    assert tried.failed == 0


def test_a_copy_of_shared_with_other_eviction_code_is_not_taken_for_shared(
    empty: Service, shared_bundle: ProgramBundle, edited: ProgramBundle
) -> None:
    """P4Info knows tables and actions; by it alone the two were the same."""
    assert edited.p4info == shared_bundle.p4info
    with connect(empty.address) as controller:
        assert controller.load(edited)
        said = (
            r"another program than 'shared' \(it serves the same jobs, but is compiled from other source; its"
            rf" cookie is {edited.cookie:#x}, not {shared_bundle.cookie:#x}\)"
        )
        with pytest.raises(OtherProgram, match=said):
            controller.load(shared_bundle)
        assert controller.load(shared_bundle, replace=True)
        assert not controller.load(shared_bundle)
        assert controller.program.cookie == shared_bundle.cookie


@pytest.mark.parametrize("preloaded", [False, True])
def test_attaching_to_a_switch_with_the_same_program_transfers_no_p4info(
    shared_bundle: ProgramBundle, preloaded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the switch came with the program, as `ina switch --program` does."""
    with (
        Switch({}) as switch,
        closing(serve(switch, source=shared_bundle.device_config.decode() if preloaded else None)) as service,
    ):
        with connect(service.address) as first:
            assert first.load(shared_bundle) is not preloaded
        kinds = asked(monkeypatch)
        with connect(service.address) as second:
            assert not second.load(shared_bundle)
            assert second.info().lanes == LANES
            assert second.jobs() == {}
        assert set(kinds) == {"COOKIE_ONLY"}
        with connect(service.address) as third:
            assert third.jobs() == {}
        assert "P4INFO_AND_COOKIE" in kinds, "who does not know the program asks for it"


def test_a_program_without_a_cookie_is_known_by_its_p4info_with_a_warning(
    empty: Service,
    bundle: ProgramBundle,
    shared_bundle: ProgramBundle,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with closing(P4RuntimeClient(empty.address)) as stranger, stranger.mastership():
        stranger.load(bundle.p4info, bundle.device_config)
        assert stranger.cookie() == 0
    with caplog.at_level(logging.WARNING, "controller"), connect(empty.address) as controller:
        assert not controller.load(bundle)
        (said,) = caplog.messages
        assert said == (
            f"the program of the switch at {empty.address} has no cookie; it is taken for 'exclusive',"
            " whose P4Info it has"
        )
        with pytest.raises(OtherProgram, match="its cookie is 0x0"):
            controller.load(shared_bundle)
    assert len(caplog.messages) == 1


def test_the_cookie_of_a_stranger_is_not_ours(empty: Service, bundle: ProgramBundle) -> None:
    with closing(P4RuntimeClient(empty.address)) as stranger, stranger.mastership():
        stranger.load(bundle.p4info, bundle.device_config, cookie=42)
    with connect(empty.address) as controller, pytest.raises(OtherProgram, match="its cookie is 0x2a"):
        controller.load(bundle)


def test_a_program_has_one_cookie_wherever_it_lies(
    tmp_path: Path, write_file: Callable[[str, str], Path], shared_bundle: ProgramBundle
) -> None:
    source, defines = source_of("shared", LANES)
    for path in source.parent.glob("include/*.p4"):
        (tmp_path / "include").mkdir(exist_ok=True)
        (tmp_path / "include" / path.name).write_text(path.read_text())
    copy = write_file(source.name, source.read_text())
    text = preprocess_once(copy, defines=defines).encode()
    assert text != shared_bundle.device_config, "it names its files"
    assert cookie_of(shared_bundle.p4info, text) == shared_bundle.cookie


def test_json_of_p4c_has_one_cookie_wherever_it_was_compiled() -> None:
    def compiled(place: str, op: str) -> bytes:
        call = {"op": op, "source_info": {"filename": place, "line": 3}}
        return json.dumps({"program": place, "actions": [{"primitives": [call]}]}).encode()

    info = p4info_pb2.P4Info()
    assert cookie_of(info, compiled("/a.p4", "drop")) == cookie_of(info, compiled("/b.p4", "drop"))
    assert cookie_of(info, compiled("/a.p4", "drop")) != cookie_of(info, compiled("/a.p4", "assign"))
    assert cookie_of(info, b"{ not json") != cookie_of(info, b"{ nor that")


# ---------------------------------------------------------------------------
# The compiled part of the controller.


def test_without_its_compiled_part_the_controller_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "library_path", lambda: Path("/nowhere/_decide.so"))
    with pytest.raises(NativeMissing, match=r"cannot be loaded .*controller\._native\.build"):
        match(2, lambda rows, columns: np.ones((len(rows), len(columns))))


# ---------------------------------------------------------------------------
# Policies from files and from entry points.


SOURCE = """
from __future__ import annotations
from dataclasses import dataclass

RUNS = []
RUNS.append(1)

@dataclass
class Mine:
    share: float = 0.5
"""


def test_a_file_is_run_once_and_gives_what_is_named(write_file: Callable[[str, str], Path]) -> None:
    path = write_file("mine.py", SOURCE)
    made = plugins.load(f"{path}:Mine", "ina.memory")()
    assert made.share == 0.5
    assert plugins.load(f"{path}:RUNS", "ina.memory") == [1]


def test_an_installed_packages_entry_point_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "mine-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ina.memory]\nhalves = ina_mine:Mine\nbroken = ina_mine:Gone\n")
    (tmp_path / "ina_mine.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    assert plugins.load("halves", "ina.memory").__name__ == "Mine"
    assert plugins.names("ina.memory") == ["broken", "halves"]
    with pytest.raises(BadSpec, match=r"'broken' \(ina_mine:Gone\): AttributeError"):
        plugins.load("broken", "ina.memory")


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        (SOURCE, "Mien", r"mine.py: no 'Mien' in it; did you mean 'Mine'\?"),
        ("def f(:\n", "f", r"mine.py: SyntaxError: .*line 1"),
        ("1 / 0\n", "f", "mine.py: ZeroDivisionError: division by zero"),
    ],
)
def test_what_is_wrong_with_a_file_is_said(
    write_file: Callable[[str, str], Path], text: str, name: str, said: str
) -> None:
    with pytest.raises(BadSpec, match=said):
        plugins.load(f"{write_file('mine.py', text)}:{name}", "ina.memory")


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(BadSpec, match=r"gone\.py: No such file"):
        plugins.load(f"{tmp_path}/gone.py:Mine", "ina.memory")
    with pytest.raises(BadSpec, match=r"'gone': no package offers it as ina\.memory"):
        plugins.load("gone", "ina.memory")
