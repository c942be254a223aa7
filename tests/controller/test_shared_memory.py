import pytest

from controller.errors import BadJob
from controller.policies.memory.regions import place
from controller.vocabulary import Region


@pytest.mark.parametrize("region", [Region(0, 100), Region(3, 7), Region(0, 0), Region(100, 0)])
def test_any_region_within_the_memory_will_do(region: Region) -> None:
    assert place(100, region) == region


def test_without_a_wish_it_is_the_whole_memory() -> None:
    assert place(100, None) == Region(0, 100)


@pytest.mark.parametrize("region", [Region(1, 100), Region(-1, 5), Region(101, 0), Region(5, -1)])
def test_a_region_that_leaves_the_memory_is_refused(region: Region) -> None:
    with pytest.raises(BadJob, match=r"exceeds the memory; the switch has 100 slots, 0 to 99"):
        place(100, region)
