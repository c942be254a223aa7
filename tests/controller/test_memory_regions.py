from itertools import pairwise

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from controller.errors import BadJob, OutOfMemory
from controller.policies.memory.regions import allocate, holes, place, region_size
from controller.vocabulary import Region

TOTAL = 256


@st.composite
def used_regions(draw: st.DrawFn) -> list[Region]:
    """Disjoint regions in any order."""
    cuts = sorted(draw(st.sets(st.integers(0, TOTAL), max_size=20)))
    regions = [Region(a, b - a) for a, b in pairwise(cuts)]
    return draw(st.permutations([r for r in regions if draw(st.booleans())]))


def slots(regions: list[Region]) -> list[int]:
    return sorted(slot for r in regions for slot in range(r.offset, r.end))


@given(used_regions())
def test_holes_are_all_that_is_free_and_as_large_as_can_be(used: list[Region]) -> None:
    found = holes(TOTAL, used)
    assert sorted(slots(used) + slots(found)) == list(range(TOTAL))
    assert all(a.end < b.offset for a, b in pairwise(found))


@given(used_regions(), st.integers(1, TOTAL))
@example([], TOTAL)
def test_a_region_is_found_exactly_if_a_hole_is_large_enough(used: list[Region], size: int) -> None:
    taken = set(slots(used))
    possible = [o for o in range(TOTAL - size + 1) if taken.isdisjoint(range(o, o + size))]
    if possible:
        region = allocate(TOTAL, used, size)
        assert region.size == size
        assert region.offset in possible
    else:
        with pytest.raises(OutOfMemory):
            allocate(TOTAL, used, size)


def test_best_fit_spares_the_large_hole() -> None:
    used = [Region(100, 10), Region(120, 10)]
    assert allocate(TOTAL, used, 10) == Region(110, 10)


def test_when_nothing_fits_the_error_says_what_there_is() -> None:
    with pytest.raises(
        OutOfMemory,
        match="50 slots are needed; 76 are free, at most 40 of them in one piece: ask for 40 or fewer",
    ) as e:
        allocate(100, [Region(40, 14), Region(90, 10)], 50)
    assert (e.value.asked, e.value.free, e.value.largest) == (50, 76, 40)


def test_a_region_of_nothing_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="at least one slot, not 0"):
        allocate(TOTAL, [], 0)


@given(st.integers(1, 2**20))
def test_region_sizes_divide_the_psn_space_and_waste_less_than_half(wanted: int) -> None:
    size = region_size(wanted)
    assert 2**32 % size == 0
    assume(wanted > 1)
    assert size / 2 < wanted <= size


@pytest.mark.parametrize("region", [Region(0, 100), Region(3, 7), Region(0, 0), Region(100, 0)])
def test_any_region_within_the_memory_will_do(region: Region) -> None:
    assert place(100, region) == region


def test_without_a_wish_it_is_the_whole_memory() -> None:
    assert place(100, None) == Region(0, 100)


@pytest.mark.parametrize("region", [Region(1, 100), Region(-1, 5), Region(101, 0), Region(5, -1)])
def test_a_region_that_leaves_the_memory_is_refused(region: Region) -> None:
    with pytest.raises(BadJob, match=r"exceeds the memory; the switch has 100 slots, 0 to 99"):
        place(100, region)
