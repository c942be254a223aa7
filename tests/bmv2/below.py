"""Jobs of which this switch is not the root, or not the only switch; each program gives them a region.

The switches above and below are stations: what they would send is made by hand.
"""

from __future__ import annotations

from tests.bmv2.jobs import Above, Job
from tests.bmv2.stations import BELOW, PARENT, WORKERS

RACK = Job(
    id=6,
    row=4,
    generation=0x106,
    group=6,
    children=dict(enumerate(WORKERS[1:4])),
    ranks={0: 4, 1: 5, 2: 6},
    role="child",
    node=3,
    above=Above(PARENT, node=0, bitmap=4, fan_in=5),
    result_bitmap=0x1F,
)
THIN_RACK = Job(
    id=7,
    row=5,
    generation=0xA07,
    group=7,
    children={0: WORKERS[0]},
    role="child",
    node=65534,
    above=Above(PARENT, node=65533, bitmap=1 << 31, fan_in=32),
    result_bitmap=0xFFFFFFFF,
)
# the uplink entry has not been written
ORPHANS = Job(
    id=8,
    row=6,
    generation=0xB08,
    group=8,
    children=dict(enumerate(WORKERS[4:6])),
    role="child",
    node=5,
    result_bitmap=0xF,
)
# three of six children of node 2 are behind this switch, one of them behind yet another switch
PASSAGE = Job(
    id=9,
    row=7,
    generation=0xC09,
    group=9,
    children={1: WORKERS[6], 4: WORKERS[7], 5: BELOW},
    ranks={1: 1, 4: 4, 5: range(2, 4)},
    role="transit",
    node=2,
    fan_in=6,
    above=Above(PARENT),
    result_bitmap=0x3,
)
# three children behind one port
BEHIND = Job(
    id=10,
    row=8,
    generation=0xD0A,
    group=10,
    children={0: WORKERS[0], 1: BELOW, 2: BELOW, 3: BELOW},
    ranks={0: 0, 1: range(1, 4)},
)
