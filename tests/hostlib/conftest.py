from __future__ import annotations

from collections.abc import Callable

import pytest

from hostlib._native import NativeKernel
from hostlib.core.kernel import Kernel
from hostlib.core.numpy_kernel import NumpyKernel

KERNELS: dict[str, Callable[[], Kernel]] = {"native": NativeKernel, "numpy": NumpyKernel}


@pytest.fixture(params=KERNELS)
def make_kernel(request: pytest.FixtureRequest) -> Callable[[], Kernel]:
    return KERNELS[request.param]
