"""The compiled part of the controller."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from controller import _native
from controller.errors import BadSpec, NativeMissing
from controller.policies.grouping.worth import Rounds

HEADER = (Path(_native.__file__).parent / "weave.h").read_text()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("MEMBERS", _native.MEMBERS),
        ("MISSING", _native.MISSING),
        ("DONE", _native.DONE),
        ("ASKS", _native.ASKS),
        ("BEHIND", _native.BEHIND),
        ("LAST", _native.LAST),
    ],
)
def test_python_and_c_mean_the_same_by_a_number(name: str, value: int) -> None:
    found = re.search(rf"WEAVE_{name} = (-?\d+),", HEADER)
    assert found is not None
    assert int(found[1]) == value


@pytest.mark.parametrize("members", [0, 5])
def test_groups_of_more_than_the_compiled_part_has_room_for_are_refused(members: int) -> None:
    with pytest.raises(BadSpec, match=f"groups of {members} jobs; 1 to 4 are possible"):
        Rounds(lambda kinds: 1.0, members)


def test_without_its_compiled_part_the_controller_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_native, "library_path", lambda: Path("/nowhere/_decide.so"))
    with pytest.raises(NativeMissing, match=r"cannot be loaded .*controller\._native\.build"):
        Rounds(lambda kinds: 1.0, 4)
