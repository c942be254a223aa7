"""Random jobs on bad networks, and what must come out of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from bmv2_topos.testbeds.virtual.network import PortedSwitch
from hostlib.collectives import Op
from hostlib.core.window import Kernel
from hostlib.fallback import FallbackCore, FallbackSettings
from hostlib.wire import encodings
from tests.hostlib.compiled_switch import exclusive_switch
from tests.hostlib.virtual_network import Impairments, VirtualNetwork
from tests.twins import quantize

JOB = 7
LANES = 32
MakeKernel = Callable[[], Kernel]
MakeServer = Callable[[FallbackSettings], FallbackCore]


@dataclass(frozen=True)
class Case:
    """A job of a few collectives on a bad network."""

    size: int
    window: int
    lengths: tuple[int, ...]
    dtype: str
    """Or "block16", "block8", "block4": float32 in that many bits."""
    op: Op
    in_place: bool
    impairments: Impairments
    seed: int
    first_psn: int = 0
    skew_us: int = 0


probabilities = st.one_of(st.just(0.0), st.floats(0, 0.2))
cases = st.builds(
    Case,
    size=st.integers(1, 6),
    window=st.integers(1, 20),
    lengths=st.lists(st.integers(0, 1500), min_size=1, max_size=3).map(tuple),
    dtype=st.sampled_from(["float32", "int32", *encodings.BLOCKS]),
    op=st.just("sum"),
    in_place=st.booleans(),
    impairments=st.builds(Impairments, probabilities, probabilities, probabilities, probabilities),
    seed=st.integers(0, 2**32),
    first_psn=st.one_of(st.just(0), st.integers(2**32 - 60, 2**32 - 1)),
    skew_us=st.sampled_from([0, 0, 100, 30_000]),
)


def network_of(
    case: Case, make_kernel: MakeKernel, switch: PortedSwitch | None = None, **options: Any
) -> VirtualNetwork:
    slots = 2 * case.window
    return VirtualNetwork(
        switch or exclusive_switch(JOB, case.size, slots),
        make_kernel,
        size=case.size,
        slots=slots,
        lanes=LANES,
        impairments=case.impairments,
        seed=case.seed,
        first_psn=case.first_psn % (2**32 - 2**32 % slots),
        numbers=_block_of(case) or "exponent",
        **options,
    )


def random_arrays(rng: np.random.Generator, case: Case, length: int) -> list[NDArray[Any]]:
    if case.dtype == "int32":
        return [rng.integers(-(10**8), 10**8, length).astype(np.int32) for _ in range(case.size)]
    scale = np.exp2(rng.integers(-60, 60, (case.size, 1)))
    return list((rng.standard_normal((case.size, length)) * scale).astype(np.float32))


def _block_of(case: Case) -> encodings.Block | None:
    return next((block for block in encodings.BLOCKS if block == case.dtype), None)


def check_sum(
    results: list[NDArray[Any]], inputs: list[NDArray[Any]], block: encodings.Block | None = None
) -> None:
    exact = np.sum([array.astype(np.float64) for array in inputs], axis=0)
    for result in results:
        assert result.tobytes() == results[0].tobytes(), "ranks got different sums"
    if results[0].dtype == np.int32:
        assert np.array_equal(results[0], exact)
        return
    elements = LANES * encodings.per_lane(block or "exponent")
    for start in range(0, len(exact), elements):
        packet = slice(start, start + elements)
        exponent = max(int(quantize.exponents(array[packet])) for array in inputs)
        bound = encodings.error_bound(exponent, len(inputs))
        if block:
            wanted = sum_of([array[packet] for array in inputs], block)
            assert np.array_equal(results[0][packet], wanted), "not the sum of what was rounded"
            bound = encodings.block_error_bound(exponent, len(inputs), block)
        assert (np.abs(results[0][packet] - exact[packet]) <= bound).all()


def run_case(case: Case, make_kernel: MakeKernel, switch: PortedSwitch | None = None) -> VirtualNetwork:
    network = network_of(case, make_kernel, switch)
    rng = np.random.default_rng(case.seed)
    for length in case.lengths:
        inputs = random_arrays(rng, case, length)
        originals = [array.copy() for array in inputs]
        starts = [int(rng.integers(0, case.skew_us + 1)) for _ in range(case.size)]
        results = network.run(inputs, case.op, in_place=case.in_place, starts_us=starts)
        check_sum(results, originals, _block_of(case))
    return network


def rounded(
    values: NDArray[np.float32], exponent: int, ranks: int, numbers: encodings.Block
) -> NDArray[np.int64]:
    """Return the whole numbers that one rank's values become in a packet of that exponent."""
    bits = 32 // encodings.per_lane(numbers)
    unit = unit_of(exponent, ranks, numbers)
    most = (2 ** (bits - 1) - 1) // ranks
    return np.rint(values.astype(np.float64) / unit).clip(-most, most).astype(np.int64)


def unit_of(exponent: int, ranks: int, numbers: encodings.Block) -> float:
    """Return the value of a field's 1."""
    bits = 32 // encodings.per_lane(numbers)
    return float(np.ldexp(1.0, max(exponent, 1) - 126 + (ranks - 1).bit_length() - (bits - 1)))


def sum_of(inputs: Sequence[NDArray[np.float32]], numbers: encodings.Block) -> NDArray[np.float32]:
    """Return the sum of one packet of every rank, which all of them must get, to the bit."""
    ranks = len(inputs)
    exponent = max(int(quantize.exponents(array)) for array in inputs)
    total = sum(rounded(array, exponent, ranks, numbers) for array in inputs)
    return (total * unit_of(exponent, ranks, numbers)).astype(np.float32)
