"""The folders in which jobs are to run."""

from __future__ import annotations

from pathlib import Path

import pytest

from controller.vocabulary import BadSpec, Job
from tests.ina.service.served import Served, play


def test_jobs_are_refused_whose_folder_is_not_on_the_machine_of_the_testbed(tmp_path: Path) -> None:
    """They were accepted, and failed after several tries with env's status 125."""

    async def story(served: Served) -> None:
        (tmp_path / "file").write_text("")
        for folder in (tmp_path / "none", tmp_path / "file", tmp_path / "file" / "below"):
            job = Job(name="lost", workers=1, command=("train",), extra={"folder": str(folder)})
            with pytest.raises(BadSpec, match=f"'lost': extra.folder = '{folder}': want a directory of"):
                await served.daemon.submit([job])
        await served.daemon.submit(
            [Job(name="found", workers=1, command=("train",), extra={"folder": str(tmp_path)})]
        )
        assert [each.name for each in served.daemon.records()] == ["found"]

    play(story)
