"""Machines and ranks of `ina run --hosts`."""

from __future__ import annotations

from pathlib import Path

import pytest

from ina.cli.cluster_options import ranks_on
from ina.cli.errors import Failure


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
