"""The host library's compiled cores written again in numpy: same decisions, same bytes.

They are the oracle of the C code, packet by packet, and what tests change to show that a defect is found.
"""

from __future__ import annotations

from collections.abc import Callable

from bmv2_topos.testbeds.virtual.settings import COMPILED, Cores
from hostlib.core.window import Kernel
from hostlib.fallback import FallbackCore, FallbackSettings
from tests.twins.fallback_core import NumpyCore
from tests.twins.kernel import NumpyKernel

TWINS = Cores(NumpyKernel, NumpyCore)

KERNELS: dict[str, Callable[[], Kernel]] = {"native": COMPILED.kernel, "numpy": TWINS.kernel}
SERVERS: dict[str, Callable[[FallbackSettings], FallbackCore]] = {
    "native": COMPILED.server,
    "numpy": TWINS.server,
}
