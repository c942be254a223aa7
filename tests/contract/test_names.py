"""The host library imports nothing of the controller; the names that both have are the same."""

from __future__ import annotations

from typing import get_args

from controller.vocabulary import CONGESTION, ENCODINGS
from controller.vocabulary.job import CONGESTION_GROUP
from hostlib import collectives, windows
from hostlib.config import JobConfig
from hostlib.core import congestion
from hostlib.wire import encodings


def test_a_job_file_names_the_congestion_controls_that_the_host_library_has() -> None:
    assert CONGESTION_GROUP == windows.GROUP
    assert CONGESTION == congestion.CONGESTION_NAMES == tuple(congestion.CONGESTION)
    assert JobConfig.__dataclass_fields__["congestion"].default == CONGESTION[0]


def test_a_job_file_names_the_encodings_that_the_host_library_has() -> None:
    assert ENCODINGS == encodings.ENCODINGS
    assert JobConfig.__dataclass_fields__["numbers"].default == ENCODINGS[0]
    assert set(get_args(collectives.Numbers)) == set(ENCODINGS) - {"fixed"}  # whose scale is a whole job's
