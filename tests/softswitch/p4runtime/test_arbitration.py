"""Mastership, rule by rule of the specification's section 5.3."""

import pytest

from softswitch.p4runtime.errors import (
    FailedPrecondition,
    InvalidArgument,
    NotFound,
    PermissionDenied,
    ResourceExhausted,
)
from softswitch.p4runtime.roles import MAX_STREAMS, Arbitration, Notification, Standing

PRIMARY, BACKUP, NO_PRIMARY = Standing.PRIMARY, Standing.BACKUP, Standing.NO_PRIMARY


def told(client: str, standing: Standing, highest: int | None) -> Notification:
    return Notification(client, "", standing, highest)


def test_the_first_with_an_id_becomes_primary() -> None:
    assert Arbitration().update("a", "", 1) == [told("a", PRIMARY, 1)]


def test_without_an_id_nobody_becomes_primary() -> None:
    assert Arbitration().update("a", "", None) == [told("a", NO_PRIMARY, None)]


def test_zero_is_an_id_like_others() -> None:
    assert Arbitration().update("a", "", 0) == [told("a", PRIMARY, 0)]


def test_a_higher_id_takes_over_and_the_old_primary_hears_first() -> None:
    arbitration = Arbitration()
    arbitration.update("a", "", 1)
    assert arbitration.update("b", "", 2) == [told("a", BACKUP, 2), told("b", PRIMARY, 2)]
    with pytest.raises(PermissionDenied, match=r"election id 1 is not the primary's, which is 2"):
        arbitration.check_primary("", 1)
    arbitration.check_primary("", 2)


def test_a_lower_id_is_a_backup_and_only_it_is_told() -> None:
    arbitration = Arbitration()
    arbitration.update("a", "", 5)
    assert arbitration.update("b", "", 2) == [told("b", BACKUP, 5)]


def test_an_id_in_use_ends_the_stream() -> None:
    arbitration = Arbitration()
    arbitration.update("a", "", 5)
    with pytest.raises(InvalidArgument, match="election id 5 is used"):
        arbitration.update("b", "", 5)
    assert arbitration.leave("b") == []
    arbitration.check_primary("", 5)


def test_when_the_primary_leaves_nobody_is_promoted() -> None:
    arbitration = Arbitration()
    arbitration.update("a", "", 5)
    arbitration.update("b", "", 2)
    assert arbitration.leave("a") == [told("b", NO_PRIMARY, 5)]
    with pytest.raises(PermissionDenied, match="no primary"):
        arbitration.check_primary("", 5)
    assert arbitration.update("b", "", 4) == [told("b", NO_PRIMARY, 5)]
    assert arbitration.update("b", "", 5) == [told("b", PRIMARY, 5)]


def test_a_primary_may_step_down_and_all_are_told() -> None:
    arbitration = Arbitration()
    arbitration.update("a", "", 5)
    arbitration.update("b", "", 2)
    assert arbitration.update("a", "", 1) == [told("a", NO_PRIMARY, 5), told("b", NO_PRIMARY, 5)]


def test_the_same_id_again_changes_nothing() -> None:
    arbitration = Arbitration()
    arbitration.update("a", "", 5)
    assert arbitration.update("a", "", 5) == [told("a", PRIMARY, 5)]


def test_roles_have_their_own_primaries() -> None:
    arbitration = Arbitration()
    arbitration.update("a", "", 5)
    arbitration.update("b", "routing", 1)
    arbitration.check_primary("routing", 1)
    arbitration.check_primary("", 5)
    assert arbitration.primaries() == ["a", "b"]
    with pytest.raises(NotFound, match="no controller has role 'other'"):
        arbitration.check_primary("other", 1)


def test_a_stream_keeps_its_role() -> None:
    arbitration = Arbitration()
    arbitration.update("a", "", 5)
    with pytest.raises(FailedPrecondition, match="open another one for role 'routing'"):
        arbitration.update("a", "routing", 5)


def test_streams_are_limited() -> None:
    arbitration = Arbitration()
    for i in range(MAX_STREAMS):
        arbitration.update(i, "", i)
    with pytest.raises(ResourceExhausted, match=f"{MAX_STREAMS} controllers"):
        arbitration.update("one more", "", None)
