from __future__ import annotations

from collections.abc import Callable

import pytest

from hostlib.fallback import FallbackCore, FallbackSettings
from tests.twins import SERVERS


@pytest.fixture(params=SERVERS)
def make_core(request: pytest.FixtureRequest) -> Callable[[FallbackSettings], FallbackCore]:
    return SERVERS[request.param]
