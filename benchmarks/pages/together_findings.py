"""What the rows of the experiment `together` show, in words; figures come from the rows."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from benchmarks.pages.together_page import (
    Rows,
    against_base,
    errors,
    gain,
    joint,
    on_mixed,
    placed,
    routed,
    where,
)
from benchmarks.pages.together_runs import (
    BEST,
    DRAWN,
    ECMP,
    ECMP_EVERYWHERE,
    ESTIMATED,
    FAST_LINKS,
    LOCALITY,
    MEMORY,
    NETPACK,
    PLACED,
    REFINED,
    SEEDS,
    SLOW,
    USUAL,
    WEAK,
    exchanged,
)

PUBLISHED_PLACEMENT: Final = 0.45
PUBLISHED_ROUTING: Final = 0.19
PUBLISHED_AT_A_FIFTH: Final = 1.35
FIFTH: Final = 0.2


def findings(rows: Rows) -> str:
    """Return the findings of whole sweeps; none for some of the seeds, or short runs."""
    if {row["seed"] for row in rows} != set(SEEDS):
        return ""
    return "\n".join(f"- {line}" for finding in FINDINGS for line in finding(rows))


def _by_placement(rows: Rows) -> Iterator[str]:
    shorter = {
        name: [
            1 - statistics.fmean(placed(rows, NETPACK, each)) / statistics.fmean(placed(rows, name, each))
            for each in MEMORY
        ]
        for name in PLACED
        if name != NETPACK
    }
    said = ", ".join(f"`{name}` {min(by):.0%} to {max(by):.0%}" for name, by in shorter.items())
    reached = [f"`{name}`" for name, by in shorter.items() if max(by) >= PUBLISHED_PLACEMENT]
    yield (
        f"Placed by NetPack, jobs are done sooner by this much than by other placements: {said}. The"
        f" published {PUBLISHED_PLACEMENT:.0%} are reached against {' and '.join(reached) or 'none'}, which"
        " spread jobs. Against locality first it gains least, for with four GPUs in a server and idle racks"
        " what counts is to keep a job together."
    )
    longer = {
        name: statistics.fmean(placed(rows, name, SLOW)) / statistics.fmean(placed(rows, name, USUAL)) - 1
        for name in PLACED
    }
    said = ", ".join(f"`{name}` {by:+.0%}" for name, by in longer.items())
    yield f"Slower links between switches make placement worth more: with half their rate {said}."
    changes = {
        name: [
            statistics.fmean(on_mixed(rows, NETPACK, odd)) / statistics.fmean(on_mixed(rows, name, odd)) - 1
            for odd in (False, True)
        ]
        for name in (LOCALITY, FAST_LINKS)
    }
    over = {name: f"{even:+.0%} ({odd:+.0%} for odd sizes)" for name, (even, odd) in changes.items()}
    yield (
        f"Where the rates of links differ, NetPack changes completion times by {over[LOCALITY]} against"
        f" `{LOCALITY}`, and by {over[FAST_LINKS]} against `{FAST_LINKS}`, which fills the servers with the"
        " fastest links first: nearly all of the gain is to know the rates."
    )


def _by_estimate(rows: Rows) -> Iterator[str]:
    told = {
        placement: ", ".join(
            f"{statistics.fmean(errors(rows, placement, each)):+.0%} ({where(each)})" for each in MEMORY
        )
        for placement in ESTIMATED
    }
    yield (
        f"The estimate of an iteration is off in the mean, where NetPack places, by {told[NETPACK]}. It knows"
        " a slot to be held for a round trip of 20 µs, and here it is 40 µs, so that it is too short where"
        f" memory is scarce. Where jobs are spread at random and share links: {told['random']}; it has all"
        " jobs send all the time."
    )


def _by_part(rows: Rows) -> Iterator[str]:
    alone = {
        BEST[1]: against_base(rows, exchanged(placement=True)),
        BEST[2]: against_base(rows, exchanged(memory=True)),
        BEST[0]: against_base(rows, exchanged(scheduler=True)),
    }
    said = ", ".join(f"`{name}` {change:+.1%}" for name, change in alone.items())
    best, weak = (statistics.fmean(joint(rows, names, "jct_s")) for names in (BEST, WEAK))
    yield (
        "Against the simple policies of the first row, each alone changes the mean completion time by:"
        f" {said}; all together by {against_base(rows, BEST):+.1%}. Against `{WEAK[1]}`, which spreads jobs"
        f" and is what gains are often given against, they seem to bring {best / weak - 1:+.0%}: to keep jobs"
        " together brings nearly all of that, and locality does it. A job that is placed well hardly needs"
        " switch memory, and does not queue."
    )
    p99 = [
        statistics.fmean(joint(rows, exchanged(True, *others), "p99_s"))
        / statistics.fmean(joint(rows, exchanged(False, *others), "p99_s"))
        - 1
        for others in ((False, False), (True, False), (False, True), (True, True))
    ]
    yield f"SRSF pays with the last jobs: the p99 changes by {min(p99):+.0%} to {max(p99):+.0%} with it."


def _by_routing(rows: Rows) -> Iterator[str]:
    ecmp, everywhere = (
        {each: gain(rows, *each, over) for each in routed(rows)} for over in (ECMP, ECMP_EVERYWHERE)
    )
    parts = {over: [gain(rows, *each, over) for each in routed(rows)] for over in (REFINED, DRAWN)}
    fifth = " and ".join(f"{1 + by:.1f}" for (_, share), by in ecmp.items() if share == FIFTH)
    yield (
        f"Against `{ECMP_EVERYWHERE}`, the strongest of the simple ones, GRID changes rates by"
        f" {min(everywhere.values()):+.0%} to {max(everywhere.values()):+.0%}; against `{ECMP}`, which sums"
        f" in the racks only, by {min(ecmp.values()):+.0%} to {max(ecmp.values()):+.0%} (published:"
        f" {PUBLISHED_ROUTING:+.0%}), and with {FIFTH:.0%} of the switches it has {fifth} times as much"
        f" (published: {PUBLISHED_AT_A_FIFTH}). Its linear program brings {min(parts[REFINED]):+.0%} to"
        f" {max(parts[REFINED]):+.0%} over the same draws and refinement without it; refinement, which is"
        f" ours, brings {min(parts[DRAWN]):+.0%} to {max(parts[DRAWN]):+.0%}. Trees are compared by the"
        " smallest rate first. Our jobs send all the time and gather at one server, which suits sums on the"
        " way."
    )


FINDINGS: Final[Sequence[Callable[[Rows], Iterator[str]]]] = (
    *(_by_placement, _by_estimate),
    *(_by_part, _by_routing),
)
