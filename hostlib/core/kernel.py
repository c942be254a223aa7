"""The two implementations of the core's inner functions, and the choice between them."""

from __future__ import annotations

import warnings
from typing import Any, Literal, Protocol

from numpy.typing import NDArray

from hostlib import _native
from hostlib.core.numpy_kernel import NumpyKernel
from hostlib.core.state import CoreState

KernelName = Literal["auto", "native", "numpy"]


class Kernel(Protocol):
    """What runs for every packet. All times are nanoseconds of the caller's clock."""

    def begin(self, state: CoreState, now: int) -> None:
        """Reset the window for the collective described in `state`."""
        ...

    def emit(self, state: CoreState, out: NDArray[Any], now: int) -> int:
        """Write the packets that may be sent now into `out`, as many as fit; return how many."""
        ...

    def absorb(self, state: CoreState, data: NDArray[Any], segment: int, now: int) -> None:
        """Take in received packets: `segment` bytes each, the last may be shorter."""
        ...

    def next_timeout(self, state: CoreState) -> int:
        """Return when the oldest packet in flight is overdue or to be probed for, or `NEVER`."""
        ...

    def settle(self, state: CoreState) -> None:
        """Count the results that are in, in the order of their PSNs, up to the end of a round."""
        ...


def choose_kernel(name: KernelName = "auto") -> Kernel:
    """Return the compiled kernel, or with a warning the numpy one if there is none.

    Raises:
        hostlib._native.NativeMissing: `name` is "native" and the compiled kernel cannot be loaded.
    """
    if name == "numpy":
        return NumpyKernel()
    try:
        return _native.NativeKernel()
    except _native.NativeMissing as error:
        if name == "native":
            raise
        warnings.warn(f"allreduce will be slow: {error}", RuntimeWarning, stacklevel=2)
        return NumpyKernel()
