"""Regions of a switch's slots: private ones (SwitchML, NSDI'21, section 4), and shared ones (ATP, INAlloc).

In ATP, all jobs have one common region (NSDI'21, section 5.2.1). In INAlloc, jobs have different regions,
which may overlap. A region of size 0 has no slots. The size of a shared region need not be a power of two.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Literal

from controller.errors import BadJob, OutOfMemory
from controller.vocabulary import Region
from controller.vocabulary.errors import plural

Reading = Literal["article", "measured"]
"""How the slots that a deadline needs are computed (`demand`)."""
READINGS: tuple[Reading, ...] = ("article", "measured")


class SlotStatus(StrEnum):
    """What a division of memory gives a job."""

    GRANTED = "granted"
    """The job has slots of its own."""
    SHARED = "shared"
    """The job shares slots with other jobs."""
    ENDED = "ended"
    """The job cannot meet its deadline even alone: the core ends the job and estimates its end."""


def region_size(slots: int) -> int:
    """Round up to a valid size of a region: a power of two, so that PSN modulo size continues when PSNs wrap.

    >>> region_size(6)
    8
    """
    return 1 << (slots - 1).bit_length()


def allocate(
    total: int,
    used: Iterable[Region],
    size: int,
    *,
    aligned: bool = False,
) -> Region:
    """Choose `size` contiguous free slots of `total`.

    Takes the smallest hole that is large enough, and so keeps large holes for large jobs. Adjacent free
    regions are one hole. O(n log n) in the regions used.

    Args:
        total: Number of slots of the memory.
        used: The regions in use, in any order.
        size: Number of slots wanted, 1 or more.
        aligned: Whether the region has to start at a multiple of `size`.

    Raises OutOfMemory, with the slots asked for, the free slots and the largest hole; ValueError if
    `size` is not positive.

    >>> allocate(100, [Region(0, 10), Region(20, 70)], 10)
    Region(offset=10, size=10)
    """
    if size <= 0:
        raise ValueError(f"a region has at least one slot, not {size}")
    free = holes(total, used)
    if aligned:
        free = [_from_multiple(hole, size) for hole in free]
    large_enough = [hole for hole in free if hole.size >= size]
    if not large_enough:
        raise OutOfMemory(size, sum(h.size for h in free), max((h.size for h in free), default=0))
    chosen = min(large_enough, key=lambda h: (h.size, h.offset))
    return Region(chosen.offset, size)


def _from_multiple(hole: Region, size: int) -> Region:
    start = -(-hole.offset // size) * size
    return Region(start, max(0, hole.end - start))


def holes(total: int, used: Iterable[Region]) -> list[Region]:
    """Return the holes among the slots 0 to `total` - 1: maximal regions of free slots, lowest first.

    Used regions may come in any order, overlap, and extend beyond the memory.

    >>> holes(10, [Region(6, 2), Region(0, 3)])
    [Region(offset=3, size=3), Region(offset=8, size=2)]
    """
    found = []
    start = 0
    for region in sorted(used, key=lambda r: r.offset):
        end = min(region.offset, total)
        if end > start:
            found.append(Region(start, end - start))
        start = max(start, region.end)
    if start < total:
        found.append(Region(start, total - start))
    return found


def place(total: int, wanted: Region | None) -> Region:
    """Return the region of a job with shared slots: `wanted`, or all `total` slots of a switch if None.

    Raises BadJob if `wanted` does not lie within the slots.

    >>> place(8192, None)
    Region(offset=0, size=8192)
    >>> place(8192, Region(4096, 0))
    Region(offset=4096, size=0)
    """
    if wanted is None:
        return Region(0, total)
    if wanted.offset < 0 or wanted.size < 0 or wanted.end > total:
        raise BadJob(
            f"the region of {plural(wanted.size, 'slot')} from {wanted.offset} exceeds the memory;"
            f" the switch has {total} slots, 0 to {total - 1}"
        )
    return wanted
