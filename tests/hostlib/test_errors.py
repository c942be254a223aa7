"""Errors of the host library in other processes: Ray and multiprocessing carry them away by pickle."""

from __future__ import annotations

import copy
import pickle

import pytest

from hostlib import errors
from hostlib.errors import NO_PACKETS, InaError, PsnRange
from hostlib.launch.machines import MissingRanks

ERRORS = (
    errors.ConfigError("no such job"),
    errors.NativeMissing("not compiled"),
    errors.RendezvousError("nobody is there"),
    errors.UnsupportedArray("float8"),
    errors.NonFiniteError(7, 256),
    errors.SumOverflow(7, PsnRange(1, 2), 512, "is too large"),
    errors.NotInitialized("call init() first"),
    errors.RanksDisagree("call 1 is a sum", job=7, psns=PsnRange(1, 2), missing=[3]),
    errors.PeerTimeout("nothing for 30 s", job=7, psns=NO_PACKETS),
    errors.PeerLost({3: "it ended with status 9"}, job=7, psns=PsnRange(1, 2)),
    errors.JobFault("the switch is gone", job=7, psns=NO_PACKETS),
    errors.Interrupted("KeyboardInterrupt", job=7, psns=NO_PACKETS),
    MissingRanks(["rank 0 on h1"], 30.0),
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_after_pickle(error: InaError) -> None:
    for found in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(found) is type(error)
        assert str(found) == str(error)
        assert found.args == error.args
        assert vars(found) == vars(error)


def test_each_public_error_is_tried() -> None:
    named = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, InaError)}
    assert named - {type(error) for error in ERRORS} == {InaError, errors.JobBroken}
