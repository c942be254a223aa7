from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hostlib.torch.tensors import MAX_SIZE, digit_bits, join, split

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.lists(INT64, min_size=3, max_size=3), min_size=1, max_size=40))
def test_sums_of_digits_join_to_the_sum_modulo_two_to_the_64(ranks: list[list[int]]) -> None:
    size = len(ranks)
    sums = sum(split(np.array(values, np.int64), size).astype(np.int64) for values in ranks)
    assert np.abs(sums).max() < 2**31, "as int32 they are exact"
    expected = [(sum(column) + 2**63) % 2**64 - 2**63 for column in zip(*ranks, strict=True)]
    assert join(np.asarray(sums), size).tolist() == expected


@pytest.mark.parametrize(
    ("size", "bits", "digits"), [(1, 31, 3), (2, 30, 3), (32, 26, 3), (512, 22, 3), (513, 21, 4)]
)
def test_digits_are_as_wide_as_the_ranks_allow(size: int, bits: int, digits: int) -> None:
    assert digit_bits(size) == bits
    assert split(np.zeros(5, np.int64), size).shape == (digits, 5)


@pytest.mark.parametrize("size", [0, MAX_SIZE + 1])
def test_sizes_that_cannot_be_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"size is {size}"):
        digit_bits(size)
