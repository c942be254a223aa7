"""Small networks, exhaustively: every order of delivery, every mishap, and how long it takes to mend it.

Real are the compiled programs, the controller's rows, the workers' windows and the fallback server's core.
See `model_check_explorer` for what is explored, `model_check_parts` for what is taken for the same state,
and `model_check_recovery` for what a round is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from bmv2_topos.soak.campaign import SwitchPools
from bmv2_topos.soak.testbed import SwitchPool
from controller.vocabulary import Mode, Region
from hostlib._native import NativeKernel
from hostlib.core.state import NEVER, Chain
from hostlib.core.window import Window
from tests import effort
from tests.system.faults_mutants import PROGRAMS
from tests.system.model_check_explorer import Budget, Case, Explored, explore
from tests.system.model_check_recovery import recovery

ROUNDS_PER_PACKET = 2
"""Rounds until all is done, for each packet whose result somebody lacks, once nothing goes wrong any more.

A time-out first asks who has contributed, for a sum that waits for another rank only should stay in its slot.
It is the next one that takes along what is stuck there: a late copy may have claimed a slot that nobody else
adds to.
"""

TWO_LEVELS = ("s1", "s2")
NOBODY_PREEMPTS = ((0, False), (1, False))
URGENT_PREEMPTS = ((0, False), (1, True))
OTHER_PREEMPTS = ((0, True), (1, False))
SECOND_IS_URGENT = ((0, True), (2, True))
FIRST_IS_URGENT = ((2, True), (0, True))
EQUALLY_URGENT = ((2, True), (2, True))
"""Whoever finds the slot taken halves its priority, so that the next one takes it."""
NO_SLOTS = Region(0, 0)
OTHER_SLOT = Region(1, 1)


@pytest.fixture(scope="module")
def racks() -> Iterator[SwitchPools]:
    with closing(SwitchPools()) as racks:
        yield racks


def exclusive(psns: int, slots: int, budget: Budget) -> Case:
    """Return a job with slots of its own, and no fallback server."""
    region = Region(0, slots)
    return Case(psns, budget, "exclusive", in_flight=slots // 2, region=region, other_region=region)


def check(found: Explored, states: int, rounds: int = ROUNDS_PER_PACKET) -> None:
    """Hold what was found to the invariants: exact, there is a way on from everywhere, and it is short."""
    assert not found.wrong, "\n".join(found.wrong[0])
    assert not found.hopeless, "\n".join(found.hopeless[0])
    assert found.recovery.rounds_per_packet <= rounds
    # fewer would mean that something is not explored any more
    assert found.states > states


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "states"),
    effort.some(
        [
            pytest.param(Case(2, Budget(losses=1)), 40_000, id="any packet is lost"),
            pytest.param(Case(2, Budget(doubles=1)), 2_000, id="any packet arrives twice"),
            pytest.param(Case(2, Budget(early=1)), 40_000, id="any time-out is too early"),
            pytest.param(Case(1, Budget(losses=1, early=1)), 6_000, id="a loss and an early time-out"),
            pytest.param(Case(1, Budget(losses=1, restarts=1)), 7_000, id="a loss, and the server forgets"),
            pytest.param(
                Case(1, Budget(losses=1), switches=TWO_LEVELS), 1_200, id="any packet is lost below or above"
            ),
        ],
        every=4,
    ),
)
def test_every_order_of_everything_ends_with_the_sums(racks: SwitchPools, case: Case, states: int) -> None:
    found = explore(case, racks.get("shared"))
    check(found, states)
    assert found.done > 10


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "states"),
    effort.some(
        [
            pytest.param(Case(1, Budget(losses=1), foreseen=(-3,)), 35_000, id="a misfit, a loss"),
            pytest.param(Case(1, Budget(losses=1), foreseen=(0,)), 400, id="as foreseen, a loss"),
            pytest.param(Case(1, Budget(doubles=1), foreseen=(5,)), 100, id="a misfit, a late copy"),
            pytest.param(Case(1, Budget(early=1), foreseen=(-3,)), 500, id="a misfit, an early time-out"),
            pytest.param(
                Case(2, Budget(doubles=1), foreseen=(0, -3)), 10_000, id="one of two, and a late copy"
            ),
            pytest.param(
                Case(1, Budget(losses=1, restarts=1), foreseen=(0,)), 9_000, id="the server forgets"
            ),
            pytest.param(
                replace(exclusive(2, 4, Budget(losses=1, doubles=1)), foreseen=(-3, 0)),
                *(3_000,),
                id="in exclusive mode",
            ),
        ],
        every=4,
    ),
)
def test_so_it_does_with_foreseen_exponents(racks: SwitchPools, case: Case, states: int) -> None:
    """Packets whose exponents were not as foreseen are an exchange of their own."""
    check(explore(case, racks.get(case.program)), states)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("program", "budget", "states"),
    effort.some(
        [
            pytest.param("shared", Budget(losses=1), 39_000, id="shared, a loss"),
            pytest.param("shared", Budget(early=1), 1_500, id="shared, an early time-out"),
            pytest.param("exclusive", Budget(losses=2, early=1), 12_000, id="exclusive, losses"),
            pytest.param("exclusive", Budget(losses=1, doubles=1, early=1), 29_000, id="exclusive, doubled"),
        ],
        every=2,
    ),
)
def test_so_it_does_below_a_switch_without_takers(
    racks: SwitchPools, program: Mode, budget: Budget, states: int
) -> None:
    """Only the rank at the root takes the sum: no lanes come down to the two at the other switch."""
    places = ("s1", "s2", "s2")
    region = Region(0, 2 if program == "exclusive" else 1)
    case = Case(
        *(1, budget, program),
        switches=TWO_LEVELS,
        places=places,
        target=0,
        in_flight=1,
        region=region,
        other_region=region,
    )
    check(explore(case, racks.get(program)), states)


@pytest.mark.slow
def test_so_it_does_where_answers_come_to_a_server_that_forgot(racks: SwitchPools) -> None:
    """With the least memory, and no slots. Rank 1 does not take the sum: it answers with what it contributed.

    That begins nothing at the server, and it is raw: the server has to ask rank 0 for its raw values too.
    """
    case = Case(
        *(1, Budget(losses=1, restarts=2)), target=0, memory=2, region=NO_SLOTS, other_region=NO_SLOTS
    )
    check(explore(case, racks.get("shared")), 90_000, ROUNDS_PER_PACKET + 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "states"),
    effort.some(
        [
            pytest.param(exclusive(1, 2, Budget(losses=1, doubles=1, early=1)), 500, id="one packet"),
            pytest.param(exclusive(2, 4, Budget(losses=1, doubles=1, early=1)), 20_000, id="two at a time"),
            pytest.param(exclusive(3, 2, Budget(losses=2, early=1)), 2_500, id="a slot is used again"),
            pytest.param(
                exclusive(3, 4, Budget(losses=1, early=1)), 12_000, id="time-outs while two are sent"
            ),
            pytest.param(
                exclusive(5, 4, Budget(losses=1, doubles=1)), 30_000, id="late copies of an older one"
            ),
            pytest.param(
                exclusive(5, 4, Budget(losses=2)), 25_000, id="two losses, and a slot is used again"
            ),
        ],
        every=4,
    ),
)
def test_so_it_does_in_exclusive_mode(racks: SwitchPools, case: Case, states: int) -> None:
    check(explore(case, racks.get("exclusive")), states)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "states"),
    effort.some(
        [
            pytest.param(Case(1, Budget(losses=1), jobs=NOBODY_PREEMPTS), 38_000, id="no preemption"),
            pytest.param(Case(1, Budget(losses=1), jobs=URGENT_PREEMPTS), 38_000, id="the urgent one may"),
            pytest.param(Case(1, Budget(early=1), jobs=OTHER_PREEMPTS), 10_000, id="only the other one may"),
            pytest.param(Case(1, Budget(losses=1), jobs=SECOND_IS_URGENT), 38_000, id="the second is urgent"),
            pytest.param(Case(1, Budget(losses=1), jobs=FIRST_IS_URGENT), 38_000, id="the first is urgent"),
            pytest.param(Case(1, Budget(early=1), jobs=EQUALLY_URGENT), 20_000, id="equally urgent, early"),
            pytest.param(
                Case(1, Budget(doubles=1), jobs=EQUALLY_URGENT), 5_000, id="equally urgent, doubled"
            ),
            pytest.param(
                Case(2, Budget(), jobs=EQUALLY_URGENT, in_flight=1), 2_500, id="equally urgent, two packets"
            ),
            pytest.param(
                Case(1, Budget(losses=1), jobs=SECOND_IS_URGENT, ages=True), 38_000, id="slots grow too old"
            ),
            pytest.param(
                Case(2, Budget(), jobs=EQUALLY_URGENT, in_flight=1, ages=True),
                2_500,
                id="equally urgent, and slots grow too old",
            ),
        ],
        every=4,
    ),
)
def test_so_it_does_for_two_jobs_that_want_the_slot(racks: SwitchPools, case: Case, states: int) -> None:
    check(explore(case, racks.get("shared")), states)


def one_by_one(psns: int, budget: Budget) -> Case:
    """Return a job each of whose packets waits for the result of the one before."""
    return Case(psns, budget, in_flight=1, psns_under_way=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("case", "to", "states"),
    effort.some(
        [
            pytest.param(one_by_one(3, Budget()), OTHER_SLOT, 80, id="another slot"),
            pytest.param(one_by_one(4, Budget(losses=1)), OTHER_SLOT, 3_500, id="another slot, a loss"),
            pytest.param(one_by_one(3, Budget(doubles=1)), OTHER_SLOT, 2_000, id="another slot, a late copy"),
            pytest.param(
                one_by_one(3, Budget(early=1)), OTHER_SLOT, 4_500, id="another slot, an early time-out"
            ),
            pytest.param(
                *(one_by_one(3, Budget(losses=1, doubles=1)), OTHER_SLOT, 50_000),
                id="another slot, a loss and a late copy",
            ),
            pytest.param(one_by_one(3, Budget(losses=1)), Region(0, 2), 2_000, id="one slot more, a loss"),
            pytest.param(one_by_one(3, Budget(losses=1)), NO_SLOTS, 2_600, id="no slots, a loss"),
            pytest.param(Case(2, Budget()), OTHER_SLOT, 1_500, id="another slot, too late for both packets"),
            pytest.param(
                *(replace(one_by_one(3, Budget(losses=1)), switches=TWO_LEVELS), OTHER_SLOT, 10_000),
                id="at either of two switches",
            ),
            pytest.param(
                *(Case(1, Budget(doubles=1), jobs=SECOND_IS_URGENT), OTHER_SLOT, 10_000),
                id="beside another job",
            ),
            pytest.param(Case(1, Budget(), jobs=FIRST_IS_URGENT), NO_SLOTS, 900, id="for another job"),
        ],
        every=4,
    ),
)
def test_so_it_does_when_a_job_is_given_other_slots(
    racks: SwitchPools, case: Case, to: Region, states: int
) -> None:
    """At any point; where each packet waits for the one before, the next but one meets the new region."""
    case = replace(case, budget=case.budget._replace(changes=1), other_region=to)
    check(explore(case, racks.get("shared")), states)


# ------------------------------------------------------------------ what it can see


def test_a_wrong_sum_is_found() -> None:
    with closing(SwitchPool(PROGRAMS["a contributor's bit is not looked at"].compile())) as rack:
        assert explore(Case(1, Budget(doubles=1)), rack).wrong


def test_a_dead_end_is_found(racks: SwitchPools, monkeypatch: pytest.MonkeyPatch) -> None:
    # workers send nothing again, so nobody ever learns of what was lost on its way to the switch
    monkeypatch.setattr(NativeKernel, "next_timeout", lambda self, state: NEVER)
    found = explore(Case(1, Budget(losses=1)), racks.get("shared"))
    assert found.hopeless
    assert "lose to s1" in "\n".join(found.hopeless[0])


def test_a_worker_that_heeds_one_time_out_in_eight_is_found(
    racks: SwitchPools, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, most = 0x200, 0xE00  # counted in bits of the chains' status that have no meaning
    on_timeout = Window.on_timeout

    def heed_some(window: Window, now: int) -> None:
        status = window.state.status
        waits = status & int(Chain.FLIGHT) != 0
        status[waits] = status[waits] & (0xFFFF ^ most) | (status[waits] + one) & most
        if not (status[waits] & most).any():
            on_timeout(window, now)

    monkeypatch.setattr(Window, "on_timeout", heed_some)
    found = explore(exclusive(2, 4, Budget(losses=1)), racks.get("exclusive"))
    # it gets there in the end, from everywhere
    assert not found.hopeless
    assert ROUNDS_PER_PACKET < found.recovery.rounds_per_packet <= 8


class Ways:
    """States by name, in which two parts have time-outs: what comes of each; nothing is ever under way."""

    timers = 2

    def __init__(self, **ways: tuple[str, str]) -> None:
        self._ways = ways

    def fire(self, state: str, timer: int) -> str:
        return self._ways[state][timer]

    def deliveries(self, state: str) -> Iterator[str]:
        return iter(())

    def outstanding(self, state: str) -> frozenset[tuple[int, int]]:
        return frozenset() if state == "done" else frozenset({(1, 0), (1, 1)})


@pytest.mark.parametrize(
    ("ways", "rounds"),
    [
        pytest.param(Ways(a=("done", "done")), 1, id="either"),
        pytest.param(Ways(a=("a", "done")), 1, id="one of the two, whose turn comes in every round"),
        pytest.param(Ways(a=("a", "b"), b=("b", "done")), 2, id="the second time"),
        pytest.param(Ways(a=("b", "done"), b=("a", "a")), math.inf, id="each undoes what the other did"),
    ],
)
def test_the_longest_way_is_counted_in_rounds(ways: Ways, rounds: float) -> None:
    found = recovery(["a"], ways)
    assert (found.rounds, found.rounds_per_packet) == (rounds, rounds / 2)


def test_packets_that_call_forth_each_other_are_found() -> None:
    class Echo(Ways):
        def deliveries(self, state: str) -> Iterator[str]:
            return iter({"a": ["b", "done"], "b": ["a"]}.get(state, []))

    assert recovery(["a"], Echo()).rounds == math.inf
