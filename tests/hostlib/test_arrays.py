from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from hostlib.collectives.arrays import Staged, stage, stage_shard, stage_shards
from hostlib.errors import UnsupportedArray

pytestmark = pytest.mark.filterwarnings("ignore::hostlib.PrecisionWarning")

dtypes = st.sampled_from([np.float32, np.float64, np.float16, np.int32, np.dtype(">f4"), np.dtype(">i4")])
layouts = st.sampled_from(["c", "fortran", "strided", "reversed", "unaligned", "transposed"])


def laid_out(array: NDArray[np.generic], layout: str) -> NDArray[np.generic]:
    match layout:
        case "fortran":
            return np.array(array, order="F")
        case "strided":
            wide = np.zeros((*array.shape, 2), array.dtype)
            wide[..., 0] = array
            return wide[..., 0]
        case "reversed":
            return np.array(array[::-1])[::-1]
        case "unaligned":
            raw = np.zeros(array.nbytes + 1, np.uint8)
            moved = raw[1:].view(array.dtype).reshape(array.shape)
            moved[...] = array
            return moved
        case "transposed":
            return np.array(array.T).T
        case _:
            return array.copy()


@given(
    hnp.array_shapes(min_dims=1, max_dims=3, min_side=0, max_side=4), dtypes, layouts, st.sampled_from("nio")
)
def test_any_layout_goes_through_and_comes_back(
    shape: tuple[int, ...], dtype: np.dtype[np.generic], layout: str, where: str
) -> None:
    """Doubling the staged values stands for the allreduce."""
    plain = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    array = laid_out(plain, layout)
    out = {"n": None, "i": array, "o": laid_out(np.zeros_like(plain), layout)}[where]
    staged = stage(array, out)
    for flat in (staged.source, staged.target):
        assert flat.ndim == 1
        assert flat.flags.c_contiguous
        assert flat.flags.aligned
        assert flat.dtype in (np.dtype(np.float32), np.dtype(np.int32))
    np.multiply(staged.source, 2, out=staged.target)
    result = staged.finish()
    assert result.shape == plain.shape
    assert result.dtype == (plain.dtype if out is not None else np.dtype(dtype).newbyteorder("="))
    assert np.array_equal(result, 2 * plain)
    assert out is None or result is out
    if where != "i":
        assert np.array_equal(array, plain), "the input was changed"


def test_in_place_needs_no_copy() -> None:
    array = np.ones((3, 4), np.float32)
    staged = stage(array, array)
    assert np.shares_memory(staged.source, array)
    assert np.shares_memory(staged.target, array)


@pytest.mark.parametrize(
    "overlapping",
    [
        lambda memory: stage(memory[:8], memory[2:]),
        lambda memory: stage_shard(memory[:8], stage(memory[:8]), memory[2:6], 0, 2),
        lambda memory: stage_shards(memory[2:4], memory[:8], 0, 4),
    ],
    ids=["sum", "reduce-scatter", "all-gather"],
)
def test_an_output_that_overlaps_its_input_does_not_spoil_it(
    overlapping: Callable[[NDArray[np.float32]], Staged],
) -> None:
    staged = overlapping(np.arange(10, dtype=np.float32))
    before = staged.source.tobytes()
    staged.target[:] = 0
    assert staged.source.tobytes() == before


def test_scalars_and_lists_are_arrays() -> None:
    assert stage(3.5).finish().shape == ()
    assert stage([1.0, 2.0]).finish().tolist() == [1.0, 2.0]


@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.complex64, np.bool_, object])
def test_other_types_are_refused_with_those_that_are_taken(dtype: type) -> None:
    with pytest.raises(UnsupportedArray, match="float32, float64, float16, int32"):
        stage(np.zeros(3, dtype))


def test_an_output_that_does_not_fit_is_refused() -> None:
    array = np.zeros(3, np.float32)
    for out in (np.zeros(4, np.float32), np.zeros(3, np.float64)):
        with pytest.raises(UnsupportedArray, match=r"out is float.*must be like the array: float32\(3,\)"):
            stage(array, out)
    frozen = np.zeros(3, np.float32)
    frozen.flags.writeable = False
    with pytest.raises(UnsupportedArray, match="writable"):
        stage(array, frozen)


def test_float64_beyond_float32_becomes_infinite_and_is_known() -> None:
    staged = stage(np.array([[1.0, np.inf], [-1e300, 1e301]]))
    assert staged.source.tolist() == [1.0, np.inf, -np.inf, np.inf]
    assert staged.beyond == (2, -1e300)
    assert stage(np.array([1.0, np.inf, np.nan])).beyond is None
