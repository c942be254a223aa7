"""Shared slots: a job's packets follow each other through a region; regions may overlap (ATP, INAlloc).

One region for all jobs is ATP's common array (NSDI'21, section 5.2.1); regions that differ, overlapping or
not, are INAlloc's. A region of size 0 uses no slots. Regions may have any size, not only powers of two.
"""

from __future__ import annotations

from controller.errors import BadJob
from controller.vocabulary import Region
from controller.vocabulary.errors import plural


def place(total: int, wanted: Region | None) -> Region:
    """Return the region of a shared job on a switch with `total` slots: all of them if none is wanted.

    Raises BadJob if the wanted region exceeds the memory.

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
