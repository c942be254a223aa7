from __future__ import annotations

from collections.abc import Callable

import pytest

from hostlib.core.window import Kernel
from tests.twins import KERNELS


@pytest.fixture(params=KERNELS)
def make_kernel(request: pytest.FixtureRequest) -> Callable[[], Kernel]:
    return KERNELS[request.param]
