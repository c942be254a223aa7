from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from hostlib import Communicator
from hostlib.core.window import Kernel
from hostlib.fallback import FallbackCore, FallbackSettings
from tests import effort
from tests.twins import KERNELS, SERVERS

# That the twins do the same as the compiled cores, other tests hold with random packets.


@pytest.fixture(params=effort.some(KERNELS, every=2))
def make_kernel(request: pytest.FixtureRequest) -> Callable[[], Kernel]:
    return KERNELS[request.param]


@pytest.fixture
def alone() -> Iterator[Communicator]:
    """The communicator of the only rank of a job, which needs no switch."""
    with closing(Communicator(None)) as communicator:
        yield communicator


@pytest.fixture(params=effort.some(SERVERS, every=2))
def make_core(request: pytest.FixtureRequest) -> Callable[[FallbackSettings], FallbackCore]:
    return SERVERS[request.param]
