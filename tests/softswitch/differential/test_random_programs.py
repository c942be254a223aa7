"""Random programs through both back ends; `sweep` runs as many more as one likes."""

import pytest

from tests.effort import cases
from tests.softswitch.differential import trial

PROGRAMS = cases(100)
PER_TEST = 8


@pytest.mark.parametrize("first", range(0, PROGRAMS, PER_TEST))
def test_back_ends_agree(first: int) -> None:
    for seed in range(first, min(first + PER_TEST, PROGRAMS)):
        try:
            trial.run(seed)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
