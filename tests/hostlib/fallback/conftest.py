from __future__ import annotations

from collections.abc import Callable

import pytest

from hostlib.fallback import FallbackCore, FallbackSettings
from hostlib.fallback.native_core import NativeCore
from hostlib.fallback.numpy_core import NumpyCore

CORES: dict[str, Callable[[FallbackSettings], FallbackCore]] = {"native": NativeCore, "numpy": NumpyCore}


@pytest.fixture(params=CORES)
def make_core(request: pytest.FixtureRequest) -> Callable[[FallbackSettings], FallbackCore]:
    return CORES[request.param]
