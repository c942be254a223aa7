from __future__ import annotations

import importlib
from ctypes import c_int64, c_void_p
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

import hostlib
from hostlib import _native
from hostlib.wire import encodings
from tests.hostlib.cases import rounded
from tests.twins import quantize

FLOAT_MAX = float(np.finfo(np.float32).max)
finite_floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
fan_ins = st.one_of(st.integers(1, 32), st.integers(33, encodings.MAX_FAN_IN))


@st.composite
def contributions(draw: st.DrawFn) -> NDArray[np.float32]:
    """One packet of every rank: (ranks, values)."""
    ranks = draw(st.one_of(st.integers(1, 32), st.sampled_from([33, 129, 256, 1000, 1024])))
    return draw(
        hnp.arrays(
            np.float32, (ranks, draw(st.integers(1, 40 if ranks <= 32 else 3))), elements=finite_floats
        )
    )


def through_the_switch(inputs: NDArray[np.float32], *, average: bool = False) -> NDArray[np.float32]:
    ranks = len(inputs)
    exponent = quantize.exponents(inputs).max().reshape(1)
    sums = np.zeros(inputs.shape[1], np.int64)
    for row in inputs:
        sums += quantize.quantize(row[None, :], exponent, ranks)[0]
    assert np.abs(sums).max() <= 2**31 - 1, "a sum wrapped"
    return quantize.dequantize(sums.astype(np.int32)[None, :], exponent, ranks, average=average)[0]


@given(contributions(), st.booleans())
@example(np.zeros((4, 3), np.float32), False)
@example(np.full((32, 2), FLOAT_MAX, np.float32), False)
@example(np.full((4, 2), -FLOAT_MAX, np.float32), True)
@example(np.full((3, 2), 1e-45, np.float32), True)
@example(np.full((1, 1), 2.0**-97, np.float32), False)
def test_a_sum_is_within_the_documented_bound(inputs: NDArray[np.float32], average: bool) -> None:
    ranks = len(inputs)
    exact = inputs.astype(np.float64).sum(axis=0) / (ranks if average else 1)
    result = through_the_switch(inputs, average=average).astype(np.float64)
    exponent = int(quantize.exponents(inputs).max())
    bound = encodings.error_bound(exponent, ranks, average=average)
    representable = np.abs(exact) + bound < FLOAT_MAX
    assert not np.isnan(result).any()
    assert (np.abs(result - exact)[representable] <= bound).all()
    assert (np.sign(result) == np.sign(exact))[~representable].all()


@given(st.lists(finite_floats, min_size=1, max_size=20), st.integers(0, 5))
def test_powers_of_two_sum_without_any_error(values: list[float], log2_ranks: int) -> None:
    """Equal inputs of few bits: nothing is rounded away, so nothing may be."""
    inputs = np.array([[np.ldexp(np.float32(1), i % 20 - 10) for i, _ in enumerate(values)]] * 2**log2_ranks)
    inputs = inputs.astype(np.float32)
    if inputs.max() / inputs.min() < 2**20:
        assert np.array_equal(through_the_switch(inputs), inputs.sum(axis=0))


@given(contributions(), st.randoms())
def test_the_order_of_ranks_changes_no_bit(inputs: NDArray[np.float32], order: object) -> None:
    assert np.array_equal(through_the_switch(inputs), through_the_switch(inputs[::-1]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_one_value_that_is_not_finite_makes_its_packet_nan(bad: float) -> None:
    inputs = np.ones((3, 4), np.float32)
    inputs[1, 2] = bad
    assert quantize.exponents(inputs).tolist() == [127, 255, 127]
    assert np.isnan(through_the_switch(inputs)).all()


def test_a_sum_beyond_float32_is_infinite_and_its_average_is_not() -> None:
    inputs = np.full((2, 1), FLOAT_MAX, np.float32)
    assert through_the_switch(inputs).tolist() == [np.inf]
    assert through_the_switch(inputs, average=True).tolist() == [FLOAT_MAX]


@given(st.integers(1, encodings.MAX_FAN_IN))
@example(1)
@example(256)
def test_the_clamp_takes_less_than_one_unit_and_nothing_up_to_128_ranks(fan_in: int) -> None:
    largest = np.nextafter(np.float32(2), np.float32(0))
    scaled = float(np.ldexp(largest, encodings.scale_log2(127, fan_in)))
    limit = quantize.clamp_limit(fan_in)
    assert limit <= (2**31 - 1) // fan_in
    assert scaled - limit < (1 if fan_in > 128 else 1e-30)


@given(fan_ins, st.integers(0, 254))
def test_an_array_changed_on_the_way_cannot_wrap_a_sum(fan_in: int, exponent: int) -> None:
    wild = np.array([[FLOAT_MAX, -FLOAT_MAX, np.nan, np.inf, -np.inf]], np.float32)
    lanes = quantize.quantize(wild, np.array([exponent], np.uint8), fan_in).astype(np.int64)
    assert np.abs(lanes).max() * fan_in <= 2**31 - 1


@pytest.mark.parametrize("fan_in", [0, -1, 1025])
def test_a_fan_in_without_a_scale_is_refused(fan_in: int) -> None:
    with pytest.raises(ValueError, match=r"1\.\.1024"):
        encodings.scale_log2(100, fan_in)


def test_the_bound_of_a_magnitude_is_that_of_its_exponent() -> None:
    assert hostlib.error_bound(1.5, 4) == encodings.error_bound(127, 4)
    assert hostlib.error_bound(0.0, 4) == encodings.error_bound(0, 4)


scales = st.integers(0, 30)


@given(contributions(), scales)
@example(np.full((3, 2), 0.5, np.float32), 0)
@example(np.full((3, 2), 715827882.0, np.float32), 0)
def test_a_sum_with_a_fixed_scale_is_within_the_documented_bound(
    inputs: NDArray[np.float32], scale_bits: int
) -> None:
    ranks = len(inputs)
    lanes, fits = quantize.quantize_fixed(inputs, scale_bits, ranks)
    with np.errstate(over="ignore"):
        scaled = np.abs(np.rint(np.ldexp(inputs.astype(np.float64), scale_bits)))
    assert np.array_equal(fits, (scaled <= (2**31 - 1) // ranks).all(axis=1))
    assert (lanes[~fits] == 0).all()
    if not fits.all():
        return
    sums = lanes.sum(axis=0, dtype=np.int64)
    assert np.abs(sums).max() <= 2**31 - 1, "a sum wrapped"
    exact = inputs.astype(np.float64).sum(axis=0)
    bound = encodings.fixed_error_bound(float(np.abs(inputs).max()), scale_bits, ranks)
    result = quantize.dequantize_fixed(sums.astype(np.int32)[None, :], scale_bits, ranks)[0]
    assert (np.abs(result - exact) <= bound).all()
    average = quantize.dequantize_fixed(sums.astype(np.int32)[None, :], scale_bits, ranks, average=True)[0]
    assert np.allclose(average, result / np.float64(ranks), rtol=2e-7, atol=0)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 2.0**31])
def test_a_packet_that_a_fixed_scale_cannot_take_is_zero_as_a_whole(bad: float) -> None:
    values = np.ones((2, 4), np.float32)
    values[1, 2] = bad
    lanes, fits = quantize.quantize_fixed(values, 4, 3)
    assert fits.tolist() == [True, False]
    assert lanes.tolist() == [[16] * 4, [0] * 4]


def call(name: str, *arguments: object) -> int:
    """A function of the compiled part: arrays by address, numbers as int, or as they are wrapped."""
    given = [c_void_p(each.ctypes.data) if isinstance(each, np.ndarray) else each for each in arguments]
    return int(getattr(_native.load(), name)(*given))


def native_lanes(values: NDArray[np.float32], exponent: int, fan_in: int) -> NDArray[np.int32]:
    wire = np.zeros(len(values), ">i4")
    call("ina_quantize", values, wire, c_int64(len(values)), exponent, fan_in)
    return wire.astype(np.int32)


def native_values(lanes: NDArray[np.int32], exponent: int, fan_in: int, average: bool) -> NDArray[np.float32]:
    values = np.zeros(len(lanes), np.float32)
    call("ina_dequantize", lanes.astype(">i4"), values, c_int64(len(lanes)), exponent, fan_in, average)
    return values


@given(hnp.arrays(np.float32, st.integers(1, 70), elements=st.floats(width=32)), st.integers(0, 255), fan_ins)
@example(np.array([FLOAT_MAX, -FLOAT_MAX, np.nan, np.inf, 0.5, -0.5, 1.5], np.float32), 0, 3)
def test_both_kernels_quantize_to_the_same_bits(
    values: NDArray[np.float32], exponent: int, fan_in: int
) -> None:
    expected = quantize.quantize(values[None, :], np.array([exponent], np.uint8), fan_in)[0]
    assert np.array_equal(native_lanes(values, exponent, fan_in), expected)


@given(
    hnp.arrays(np.int32, st.integers(1, 70)),
    st.integers(0, 255),
    fan_ins,
    st.booleans(),
)
@example(np.array([1, -1, 3, 2**31 - 1, -(2**31)], np.int32), 0, 3, True)
@example(np.array([1, -1, 3, 2**31 - 1, -(2**31)], np.int32), 254, 1, False)
def test_both_kernels_dequantize_to_the_same_bits(
    lanes: NDArray[np.int32], exponent: int, fan_in: int, average: bool
) -> None:
    row = quantize.dequantize(lanes[None, :], np.array([exponent], np.uint8), fan_in, average=average)[0]
    values = native_values(lanes, exponent, fan_in, average)
    assert np.array_equal(values.view(np.uint32), row.view(np.uint32)) or (
        np.isnan(values).all() and np.isnan(row).all()
    )


@given(hnp.arrays(np.float32, st.integers(1, 70), elements=st.floats(width=32)), scales, fan_ins)
@example(np.array([1.5, 0.5, -0.5, 2.5], np.float32), 0, 3)
def test_both_kernels_scale_to_the_same_bits(
    values: NDArray[np.float32], scale_bits: int, fan_in: int
) -> None:
    expected, fits = quantize.quantize_fixed(values[None, :], scale_bits, fan_in)
    wire = np.zeros(len(values), ">i4")
    assert call("ina_quantize_fixed", values, wire, c_int64(len(values)), scale_bits, fan_in) == fits[0]
    assert np.array_equal(wire, expected[0])


@given(hnp.arrays(np.int32, st.integers(1, 70)), scales, fan_ins, st.booleans())
def test_both_kernels_scale_back_to_the_same_bits(
    lanes: NDArray[np.int32], scale_bits: int, fan_in: int, average: bool
) -> None:
    expected = quantize.dequantize_fixed(lanes[None, :], scale_bits, fan_in, average=average)[0]
    values = np.zeros(len(lanes), np.float32)
    call(
        "ina_dequantize_fixed", lanes.astype(">i4"), values, c_int64(len(lanes)), scale_bits, fan_in, average
    )
    assert np.array_equal(values.view(np.uint32), expected.view(np.uint32))


blocks = st.sampled_from(encodings.BLOCKS)


@st.composite
def blocks_of_ranks(draw: st.DrawFn) -> tuple[NDArray[np.float32], encodings.Block]:
    """One packet of every rank, (ranks, values), filling its lanes, and an encoding that has room for it."""
    numbers = draw(blocks)
    most = encodings.most_ranks(numbers)
    ranks = draw(st.one_of(st.integers(1, min(most, 32)), st.sampled_from([most, most // 2 + 1])))
    lanes = draw(st.integers(1, 6 if ranks <= 32 else 1))
    shape = (ranks, lanes * encodings.per_lane(numbers))
    return draw(hnp.arrays(np.float32, shape, elements=finite_floats)), numbers


def packed_through_the_switch(
    inputs: NDArray[np.float32], numbers: encodings.Block, *, average: bool = False
) -> NDArray[np.float32]:
    """Sums of fields; a switch adds in any order and groups, so partial sums may not wrap either."""
    ranks, fields = len(inputs), encodings.per_lane(numbers)
    exponent = quantize.exponents(inputs).max().reshape(1)
    packed = [quantize.pack(row[None], exponent, ranks, fields) for row in inputs]
    lanes = np.concatenate(packed).astype(np.int64)
    largest = lanes.clip(0).sum(axis=0).max(), -lanes.clip(None, 0).sum(axis=0).min()  # of any part
    assert max(largest) <= 2**31 - 1, "a sum wrapped"
    sums = lanes.sum(axis=0).astype(np.int32)[None]
    wanted = sum(rounded(row, int(exponent[0]), ranks, numbers) for row in inputs)
    assert np.array_equal(fields_of(sums, ranks, fields), wanted), "a field is not the sum of its values"
    return quantize.unpack(sums, exponent, ranks, fields, average=average)[0]


def fields_of(sums: NDArray[np.int32], ranks: int, fields: int) -> NDArray[np.int64]:
    """The sums in the fields of lanes, by arithmetic of whole numbers without bits."""
    bits = 32 // fields
    most = (2 ** (bits - 1) - 1) // ranks
    rest = sums[0].astype(np.int64)
    found = []
    for _ in range(fields - 1):
        found.append(rest % 2**bits - ranks * most)
        rest = rest // 2**bits
    return np.concatenate([rest, *found[::-1]])


@given(blocks_of_ranks(), st.booleans())
@example((np.full((32, 2), FLOAT_MAX, np.float32), "block16"), False)
@example((np.tile(np.array([[1, -1]], np.float32) * np.float32(1.9999), (8, 1)), "block16"), False)
@example((np.tile(np.array([[-1, 1]], np.float32) * np.float32(1.9999), (7, 1)), "block16"), True)
@example((np.full((3, 2), 1e-45, np.float32), "block16"), True)
@example((np.full((127, 4), FLOAT_MAX, np.float32), "block8"), False)
@example((np.full((127, 4), -FLOAT_MAX, np.float32), "block8"), True)
@example((np.tile(np.array([[1, -1, 1, -1]], np.float32) * np.float32(1.9999), (8, 1)), "block8"), False)
@example((np.tile(np.array([[-1, 1] * 4], np.float32) * np.float32(1.9999), (4, 1)), "block4"), False)
@example((np.full((7, 8), -1.9999, np.float32), "block4"), False)
@example((np.full((3, 8), 1e-45, np.float32), "block4"), True)
def test_a_sum_in_blocks_is_within_the_documented_bound_and_of_fields_it_is_exact(
    case: tuple[NDArray[np.float32], encodings.Block], average: bool
) -> None:
    inputs, numbers = case
    ranks = len(inputs)
    exact = inputs.astype(np.float64).sum(axis=0) / (ranks if average else 1)
    result = packed_through_the_switch(inputs, numbers, average=average).astype(np.float64)
    exponent = int(quantize.exponents(inputs).max())
    bound = encodings.block_error_bound(exponent, ranks, numbers, average=average)
    representable = np.abs(exact) + bound < FLOAT_MAX
    assert (np.abs(result - exact)[representable] <= bound).all()
    turned = packed_through_the_switch(inputs[::-1], numbers, average=average)
    assert np.array_equal(result, turned, equal_nan=True)


@pytest.mark.parametrize(
    ("numbers", "ranks", "bits"),
    [("block16", 4, 13), ("block16", 1, 15), ("block8", 4, 5), ("block8", 8, 4), ("block4", 2, 2)],
)
def test_blocks_are_as_good_as_they_are_said_to_be(numbers: encodings.Block, ranks: int, bits: int) -> None:
    """Of 4 ranks a value in 16 bits has 13, and its sign: no error is larger than 2**-13 of the range."""
    assert hostlib.error_bound(1.5, ranks, numbers=numbers) == pytest.approx(ranks * 2 * 2.0**-bits)
    most = quantize.field_limit(ranks, encodings.per_lane(numbers))
    assert most == 2**bits - 1


@pytest.mark.parametrize(("numbers", "most"), [("block16", 1024), ("block8", 127), ("block4", 7)])
def test_more_ranks_than_there_is_room_for_are_refused(numbers: encodings.Block, most: int) -> None:
    assert encodings.most_ranks(numbers) == most
    assert encodings.why_no_room(numbers, most) is None
    assert hostlib.error_bound(1.0, most, numbers=numbers) > 0
    assert quantize.field_limit(most, encodings.per_lane(numbers)) >= 1
    with pytest.raises(ValueError, match=rf"{numbers} has room for the sum of at most {most} ranks"):
        hostlib.error_bound(1.0, most + 1, numbers=numbers)
    # on machines there may be more of them: as many machines as there is room for
    assert hostlib.error_bound(1.0, 2 * most, numbers=numbers, hierarchical=True) > 0


@pytest.mark.parametrize("numbers", encodings.BLOCKS)
def test_what_is_left_of_a_value_and_what_was_sent_make_it_up(numbers: encodings.Block) -> None:
    values = np.random.default_rng(1).standard_normal((5, 8)).astype(np.float32)
    exponent, fields = quantize.exponents(values), encodings.per_lane(numbers)
    sent = quantize.unpack(quantize.pack(values, exponent, 1, fields), exponent, 1, fields)
    assert np.array_equal(sent + quantize.rest(values, exponent, 1, fields), values)


@pytest.mark.parametrize("numbers", encodings.BLOCKS)
@pytest.mark.parametrize("ranks", [1, 3, 4, 7])
def test_what_is_left_of_the_largest_numbers_is_finite(numbers: encodings.Block, ranks: int) -> None:
    """What is sent of them is rounded up, beyond float32: the rest was infinite, or not, by processor."""
    values, fields = np.full((1, 8), FLOAT_MAX, np.float32), encodings.per_lane(numbers)
    left = quantize.rest(values, quantize.exponents(values), ranks, fields)[0]
    unit = hostlib.error_bound(FLOAT_MAX, ranks, numbers=numbers) / ranks
    assert (np.abs(left.astype(np.float64)) <= unit).all()
    check_both_kernels(values[0], fields, 254, ranks, 8, average=False)


@given(
    hnp.arrays(np.float32, st.integers(1, 70), elements=finite_floats),
    *(blocks, st.integers(0, 255), st.data(), st.integers(9, 70), st.booleans()),
)
def test_both_kernels_pack_to_the_same_bits(
    values: NDArray[np.float32],
    numbers: encodings.Block,
    exponent: int,
    data: st.DataObject,
    lanes: int,
    average: bool,
) -> None:
    fields = encodings.per_lane(numbers)
    fan_in = data.draw(st.integers(1, encodings.most_ranks(numbers)))
    check_both_kernels(values[: fields * lanes], fields, exponent, fan_in, lanes, average=average)


@pytest.mark.parametrize("fields", [2, 4, 8])
def test_both_kernels_pack_extremes_to_the_same_bits(fields: int) -> None:
    values = np.array([FLOAT_MAX, -FLOAT_MAX, 0.5, -0.5, 1.5, np.nan, np.inf], np.float32)
    check_both_kernels(values[:5], fields, 0, 3, 35, average=True)
    check_both_kernels(values[:5], fields, 254, 7, 1 + 5 // fields, average=False)
    check_both_kernels(values, fields, 255, 3, 35, average=True)


def check_both_kernels(
    values: NDArray[np.float32], fields: int, exponent: int, fan_in: int, lanes: int, *, average: bool
) -> None:
    rows, exponents = np.zeros((1, fields * lanes), np.float32), np.array([exponent], np.uint8)
    rows[0, : len(values)] = values
    packed = quantize.pack(rows, exponents, fan_in, fields, len(values))
    wire, sizes = np.zeros(lanes, ">i4"), (c_int64(len(values)), c_int64(lanes))
    call("ina_pack", values, wire, *sizes, exponent, fan_in, fields)
    assert np.array_equal(wire, packed[0])
    sums = packed * (fan_in if fan_in <= 32 else 1)
    found = np.zeros(len(values), np.float32)
    call("ina_unpack", sums.astype(">i4"), found, *sizes, exponent, fan_in, fields, average)
    want = quantize.unpack(sums, exponents, fan_in, fields, average=average)[0, : len(values)]
    assert np.array_equal(found, want, equal_nan=True)
    left = values.copy()
    call("ina_leave_rest", left, c_int64(len(left)), exponent, fan_in, fields)
    with np.errstate(over="ignore", invalid="ignore"):
        want = quantize.rest(rows, exponents, fan_in, fields)[0, : len(values)]
        assert np.array_equal(left, want, equal_nan=True)


@pytest.fixture(scope="module")
def tensors() -> Any:
    pytest.importorskip("torch")
    return importlib.import_module("hostlib.torch.tensors")


INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.lists(INT64, min_size=3, max_size=3), min_size=1, max_size=40))
def test_sums_of_digits_join_to_the_sum_modulo_two_to_the_64(tensors: Any, ranks: list[list[int]]) -> None:
    size = len(ranks)
    sums = sum(tensors.split(np.array(values, np.int64), size).astype(np.int64) for values in ranks)
    assert np.abs(sums).max() < 2**31, "as int32 they are exact"
    expected = [(sum(column) + 2**63) % 2**64 - 2**63 for column in zip(*ranks, strict=True)]
    assert tensors.join(np.asarray(sums), size).tolist() == expected


@pytest.mark.parametrize(
    ("size", "bits", "digits"), [(1, 31, 3), (2, 30, 3), (32, 26, 3), (512, 22, 3), (513, 21, 4)]
)
def test_digits_are_as_wide_as_the_ranks_allow(tensors: Any, size: int, bits: int, digits: int) -> None:
    assert tensors.digit_bits(size) == bits
    assert tensors.split(np.zeros(5, np.int64), size).shape == (digits, 5)


@pytest.mark.parametrize("size", [0, 2**20 + 1])
def test_sizes_that_cannot_be_are_refused(tensors: Any, size: int) -> None:
    with pytest.raises(ValueError, match=f"size is {size}"):
        tensors.digit_bits(size)
