from __future__ import annotations

import os
import stat
import threading
from pathlib import Path

import pytest

from controller.simulator.files import whole


def test_a_file_appears_when_all_of_it_is_there(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "result.svg"
    with whole(path) as draft:
        assert draft.suffix == ".svg"
        draft.write_text("half")
        assert not path.exists()
        draft.write_text("all of it")
    assert path.read_text() == "all of it"
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, SystemExit])
def test_after_an_interrupt_the_older_file_is_as_it_was(tmp_path: Path, error: type[BaseException]) -> None:
    path = tmp_path / "result.json"
    path.write_text("older")

    def interrupted() -> None:
        with whole(path) as draft:
            draft.write_text("half")
            raise error

    with pytest.raises(error):
        interrupted()
    assert path.read_text() == "older"
    assert list(tmp_path.iterdir()) == [path]


def test_what_a_link_leads_to_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    target, link = tmp_path / "there" / "target", tmp_path / "link"
    target.write_text("older")
    link.symlink_to(target)
    with whole(link) as draft:
        draft.write_text("new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    heard: list[str] = []
    reader = threading.Thread(target=lambda: heard.append(pipe.read_text()))
    reader.start()
    with whole(pipe) as place:
        place.write_text("through the pipe")
    reader.join()
    assert heard == ["through the pipe"]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


def test_an_error_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    with pytest.raises(FileNotFoundError) as caught, whole(path) as draft:
        draft.read_text()
    assert caught.value.filename == str(path)
