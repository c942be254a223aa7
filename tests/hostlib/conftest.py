from __future__ import annotations

from collections.abc import Callable

import pytest

from hostlib.core.window import Kernel
from hostlib.fallback import FallbackCore, FallbackSettings
from tests.twins import KERNELS, SERVERS


@pytest.fixture(params=KERNELS)
def make_kernel(request: pytest.FixtureRequest) -> Callable[[], Kernel]:
    return KERNELS[request.param]


@pytest.fixture(params=SERVERS)
def make_core(request: pytest.FixtureRequest) -> Callable[[FallbackSettings], FallbackCore]:
    return SERVERS[request.param]
