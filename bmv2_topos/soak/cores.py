"""The cores that a schedule names, with one compiled library per process."""

from __future__ import annotations

import ctypes
import functools

from bmv2_topos.testbeds.virtual.settings import TestbedError
from hostlib import _native
from hostlib._native import NativeKernel
from hostlib.core.kernel import Kernel, KernelName
from hostlib.core.numpy_kernel import NumpyKernel
from hostlib.fallback.config import FallbackSettings
from hostlib.fallback.core import FallbackCore
from hostlib.fallback.native_core import NativeCore
from hostlib.fallback.numpy_core import NumpyCore


@functools.cache
def native_library() -> ctypes.CDLL:
    """Return the host library's compiled part, loaded once per process. Raises TestbedError."""
    try:
        return _native.load()
    except _native.NativeMissing as error:
        raise TestbedError(str(error)) from error


@functools.cache
def kernel_of(name: KernelName) -> Kernel:
    """Return a worker's kernel, one for all windows of the process."""
    return NumpyKernel() if name == "numpy" else NativeKernel(native_library())


def core_of(settings: FallbackSettings, name: KernelName) -> FallbackCore:
    """Return a fallback server's core."""
    return NumpyCore(settings) if name == "numpy" else NativeCore(settings, native_library())
