"""A switch has one owner: the controller that decides on its jobs. Others are refused, or take over."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from controller import Registration, SwitchSession
from controller.errors import OtherOwner
from controller.switches.leases import Owner, owner_of, this_process
from tests.controller import single
from tests.controller.conftest import Running
from tests.controller.test_leases import NAMES_ITSELF, job

Connect = Callable[[], SwitchSession]
FIRST, SECOND = (Owner(name, f"the controller {name}", this_process()) for name in ("first", "second"))


@pytest.fixture(autouse=True)
def emptied(running: Running) -> Iterator[None]:
    """Leave the switch empty: jobs and marks stay on it by design."""
    yield
    running.wipe()


def ended_process() -> str:
    """Name a process of this machine that has ended."""
    done = subprocess.run(
        [sys.executable, "-c", NAMES_ITSELF], input="\n", capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def marked(running: Running) -> Owner | None:
    row = running.target().read_row(FIRST.mark().table, FIRST.mark().match)
    return None if row is None else owner_of(row)


def test_a_second_controller_is_refused_with_the_name_of_the_first(
    connect: Connect, running: Running
) -> None:
    one, other = connect(), connect()
    one.claim(FIRST)
    with pytest.raises(OtherOwner, match=r"belongs to the controller first \(id first\)"):
        other.claim(SECOND)
    with pytest.raises(OtherOwner):
        other.observe()
    with pytest.raises(OtherOwner):
        single.admit(other, job(0))
    assert single.admit(one, job(0)).job in one.jobs()
    assert marked(running) == FIRST


def test_who_only_looks_notices_that_another_has_taken_over(connect: Connect) -> None:
    one, other = connect(), connect()
    one.claim(FIRST)
    one.observe()
    other.claim(SECOND, take_over=True)
    with pytest.raises(OtherOwner, match="belongs to the controller second"):
        one.observe()


def test_an_owner_is_checked_without_a_mark(connect: Connect, running: Running) -> None:
    """One that is refused by one switch of several must leave no mark on the others."""
    one, other = connect(), connect()
    one.check_owner(FIRST)
    assert marked(running) is None
    one.claim(FIRST)
    with pytest.raises(OtherOwner, match="belongs to the controller first"):
        other.check_owner(SECOND)


def test_the_first_writes_nothing_more_once_another_has_taken_over(
    connect: Connect, running: Running
) -> None:
    one, other = connect(), connect()
    one.claim(FIRST)
    there = single.admit(one, job(0))
    other.claim(SECOND, take_over=True)
    for write in (lambda: single.remove(one, there), lambda: single.admit(one, job(2)), one.observe):
        with pytest.raises(OtherOwner, match="belongs to the controller second"):
            write()
    assert [*other.jobs()] == [there.job]
    assert marked(running) == SECOND


def test_a_controller_that_has_ended_leaves_a_switch_without_jobs_of_its_own(connect: Connect) -> None:
    ended = Owner("first", "the controller first", ended_process())
    one, other = connect(), connect()
    one.claim(ended)
    leased = Registration("somebody else", lease_s=60.0)
    single.admit(one, job(0), registration=leased)
    own = single.admit(one, job(2))
    with pytest.raises(OtherOwner):
        other.claim(SECOND)
    single.remove(one, own)
    other.claim(SECOND)
    with pytest.raises(OtherOwner):
        single.admit(one, job(2))


def test_a_controller_that_is_started_again_owns_its_switches_still_but_not_while_it_lives(
    connect: Connect,
) -> None:
    one, again, copied = connect(), connect(), connect()
    one.claim(Owner("first", "it was", ended_process()))
    single.admit(one, job(0))
    again.claim(FIRST)
    with pytest.raises(OtherOwner):
        single.admit(one, job(2))
    with pytest.raises(OtherOwner):
        copied.claim(Owner("first", "a copy of its state", ""))


def test_a_switch_that_was_started_anew_is_marked_again(connect: Connect, running: Running) -> None:
    one = connect()
    one.claim(FIRST)
    running.wipe()
    assert marked(running) is None
    single.admit(one, job(0))
    assert marked(running) == FIRST


def test_a_switch_is_read_within_a_turn_although_it_is_not_marked_yet(connect: Connect) -> None:
    """A switch without a program has no mark; turns do not nest."""
    one = connect()
    with one.turn():
        one.owner = FIRST
        assert one.observe().rows == []


def test_who_does_not_own_switches_shares_them(connect: Connect) -> None:
    connect().claim(FIRST)
    assert single.admit(connect(), job(0)).job


@pytest.mark.parametrize("text", [b"", b"{", b'{"ina_owner": 1}', b'{"ina_owner": {"id": "a"}}', b"[" * 9999])
def test_what_is_no_mark_names_nobody(text: bytes) -> None:
    assert owner_of(replace(FIRST.mark(), metadata=text)) is None
