"""What users hand in: summed rightly, or refused with what it was and what would be right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import hostlib as ina
from tests.hostlib.socket_switch import SocketSwitch
from tests.hostlib.test_communicator import on_every_rank, run_ranks

ROOT = Path(__file__).parents[2]
ONES = np.ones(6, np.float32)

pytestmark = pytest.mark.filterwarnings("ignore::hostlib.PrecisionWarning")


class Tensor:
    """What torch's tensors are to NumPy: memory that it sees, and a way back."""

    def __init__(self, array: NDArray[Any], *, copies: bool = False) -> None:
        self.array = array
        self._copies = copies

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self.array.copy() if self._copies else self.array

    def __array_wrap__(self, array: NDArray[Any]) -> Tensor:
        return Tensor(array)

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


class Elsewhere(Tensor):
    """A tensor that is not in this machine's memory."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        raise TypeError("can't convert cuda:0 device type tensor to numpy.")

    def __dlpack__(self, **options: Any) -> Any:
        raise BufferError("device 2")


REFUSED: dict[str, tuple[Any, str]] = {
    "whole numbers": (
        [1, 2],
        r"dtype is int64, must be .*int32; values 1\.\.2 fit array\.astype\(numpy\.int32\)",
    ),
    "large whole numbers": (
        np.array([-1, 2**40]),
        r"values -1\.\.1099511627776 do not fit int32, array.astype\(numpy.float32\) rounds",
    ),
    "unsigned": (
        np.array([2**32 - 1], np.uint32),
        r"dtype is uint32.*values 4294967295\.\.4294967295 do not",
    ),
    "no whole numbers": (
        np.empty(0, np.int64),
        "dtype is int64, must be one of float32, float64, float16, int32$",
    ),
    "huge whole numbers": ([2**70], "dtype is object, .*; its elements are of type int"),
    "truth values": (np.array([True]), r"dtype is bool.*sum array\.astype\(numpy\.int32\) to count"),
    "complex": (np.array([1j]), r"dtype is complex128.*sum array\.real and array\.imag"),
    "long doubles": (np.zeros(2, np.longdouble), r"dtype is .*array\.astype\(numpy\.float32\) rounds"),
    "texts": (["a"], "dtype is <U1"),
    "bytes": (np.array([b"a"]), r"dtype is \|S1"),
    "times": (np.zeros(2, "M8[s]"), r"dtype is datetime64\[s\]"),
    "structured": (np.zeros(2, [("x", "f4"), ("y", "f4")]), r"sum its fields, array\['x'\] and so on"),
    "nothing": (None, "dtype is object, .*; its elements are of type NoneType"),
    "a dict": ({"w": ONES}, "its elements are of type dict"),
    "ragged": ([[1.0], [1.0, 2.0]], "the array is a list that NumPy cannot read: .*inhomogeneous"),
    "masked": (np.ma.array([1.0, 2.0], mask=[0, 1]), r"the array is masked, .*array\.filled\(0\)"),
    "masked, nothing hidden": (np.ma.array([1.0, 2.0]), "the array is masked"),
    "a list of masked": ([np.ma.array([1.0], mask=[1]), np.ones(1)], "the array is masked"),
    "a masked element": ([1.0, np.ma.masked], "the array is masked"),
    "a tensor elsewhere": (
        Elsewhere(ONES),
        r"the array is a .*Elsewhere that NumPy cannot read: .*cuda:0.*; pass tensor\.detach\(\)\.cpu\(\)",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_summed_is_refused_with_the_reason(what: str, alone: ina.Communicator) -> None:
    array, message = REFUSED[what]
    with pytest.raises(ina.UnsupportedArray, match=message):
        alone.allreduce(array)


WRONG_OUT: dict[str, tuple[Any, Any, str]] = {
    "a list": (ONES, [0.0] * 6, "out is a list, must be a NumPy array, or a tensor in the memory of the CPU"),
    "a number": (np.float32(1), 0.0, "out is a float, must be"),
    "masked": (ONES, np.ma.array(ONES), "out is masked"),
    "read-only": (ONES, np.broadcast_to(np.float32(0), 6), "out is read-only, must be writable"),
    "shared elements": (
        np.ones((5, 2), np.float32),
        np.lib.stride_tricks.as_strided(np.zeros(20, np.float32), (5, 2), (4, 4)),
        r"elements of out share memory: shape \(5, 2\)",
    ),
    "another shape": (
        ONES,
        np.ones((2, 3), np.float32),
        r"out is float32\(2, 3\), must be like the array: float32\(6,\)",
    ),
    "another byte order": (ONES, np.ones(6, ">f4"), r"out is >f4\(6,\)"),
    "a tensor that is a copy": (
        ONES,
        Tensor(np.zeros(6, np.float32), copies=True),
        "out is a .*Tensor, must be",
    ),
    "a tensor elsewhere": (ONES, Elsewhere(ONES.copy()), "out is a .*Elsewhere that NumPy cannot read"),
}


@pytest.mark.parametrize("what", WRONG_OUT)
def test_what_cannot_be_written_is_refused_with_the_reason(what: str, alone: ina.Communicator) -> None:
    array, out, message = WRONG_OUT[what]
    with pytest.raises(ina.UnsupportedArray, match=message):
        alone.allreduce(array, out=out)


def test_arrays_of_all_kinds_are_summed_in_the_switch(tmp_path: Path) -> None:
    big_endian, strided = np.arange(6, dtype=">f8"), np.arange(12, dtype=np.int32)[::2]
    mapped = np.memmap(tmp_path / "map", np.float32, "w+", shape=(3,))
    mapped[:] = 4
    given = [
        3.5,
        [1.0, 2.0],
        [ONES, ONES],
        np.float32(2),
        np.zeros((0, 3), np.float32),
        np.ones((2, 3, 4), np.float16).T,
        big_endian,
        strided,
        np.ones((1, 2)).view(np.matrix),
        mapped,
        np.ones(3, np.dtype("f4", metadata={"unit": "m"})),
        np.broadcast_to(np.float32(7), (2, 2)),
    ]

    def body(comm: ina.Communicator) -> list[Any]:
        return [comm.allreduce(array) for array in given]

    for results in run_ranks(2, body):
        for array, result in zip(given, results, strict=True):
            plain = np.asarray(array)
            assert type(result) is np.ndarray
            assert result.dtype == plain.dtype.newbyteorder("=")
            assert result.shape == plain.shape
            assert np.array_equal(result, 2 * plain)


def test_outputs_of_all_kinds_are_written_by_the_switch(tmp_path: Path) -> None:
    def body(comm: ina.Communicator) -> list[Any]:
        outs: list[Any] = [
            np.zeros((2, 3), np.float32).view(np.matrix),
            np.memmap(tmp_path / f"map{comm.rank}", np.float32, "w+", shape=(2, 3)),
            np.zeros((2, 3), ">f4").astype(np.float32, order="F"),
            np.zeros((4, 9), np.float32)[::2, ::3],
            Tensor(np.zeros((2, 3), np.float32)),
            Tensor(np.zeros((2, 6), np.float32)[:, ::2]),
        ]
        for out in outs:
            assert comm.allreduce(np.arange(6, dtype=np.float32).reshape(2, 3), out=out) is out
        return [np.array(out) for out in outs]

    for results in run_ranks(2, body):
        for result in results:
            assert result.tolist() == [[0, 2, 4], [6, 8, 10]]


def test_a_tensor_comes_back_as_one() -> None:
    def body(comm: ina.Communicator) -> list[Any]:
        single, double = Tensor(np.ones(4, np.float32)), Tensor(np.ones((2, 2)))
        results: list[Any] = [
            comm.allreduce(single),
            comm.allreduce_async(double).wait(60),
            comm.reduce(single, root=1),
        ]
        assert comm.allreduce(single, out=single) is single
        return [*results, single]

    for rank, (one, two, reduced, in_place) in enumerate(run_ranks(2, body)):
        assert type(one) is type(two) is Tensor
        assert (one.array.dtype, two.array.dtype) == (np.float32, np.float64)
        assert one.array.tolist() == in_place.array.tolist() == [2, 2, 2, 2]
        assert two.array.tolist() == [[2, 2], [2, 2]]
        assert (reduced is None) == (rank == 0)


def test_torch_tensors_on_the_cpu_are_summed() -> None:
    torch = pytest.importorskip("torch")

    def body(comm: ina.Communicator) -> list[Any]:
        gradient = torch.nn.Linear(3, 2).weight
        gradient.grad = torch.full((2, 3), comm.rank + 1.0)
        comm.allreduce(gradient.grad, "average", out=gradient.grad)
        return [
            gradient.grad,
            comm.allreduce(torch.ones(2, 3).T),
            comm.allreduce(torch.tensor(1.5)),
            comm.allreduce(torch.ones(3, dtype=torch.int32)),
            comm.allreduce_async(torch.ones(3, dtype=torch.float64)).wait(60),
            comm.allreduce(gradient.detach() * 0 + 1, out=torch.zeros(2, 6)[:, ::2]),
        ]

    for averages, transposed, scalar, ints, doubles, sliced in run_ranks(2, body):
        assert torch.equal(averages, torch.full((2, 3), 1.5))
        assert torch.equal(transposed, torch.full((3, 2), 2.0))
        assert torch.equal(scalar, torch.tensor(3.0))
        assert torch.equal(ints, torch.full((3,), 2, dtype=torch.int32))
        assert torch.equal(doubles, torch.full((3,), 2.0, dtype=torch.float64))
        assert torch.equal(sliced, torch.full((2, 3), 2.0))


def test_torch_tensors_that_cannot_be_summed_are_refused(alone: ina.Communicator) -> None:
    torch = pytest.importorskip("torch")
    ones = torch.ones(3)
    for tensor, message in (
        (
            torch.ones(3, requires_grad=True),
            r"torch\.Tensor that NumPy cannot read: .*; pass tensor\.detach\(\)",
        ),
        (torch.ones(3, device="meta"), r"torch\.Tensor that NumPy cannot read: .*meta.*; pass .*\.cpu\(\)"),
        (torch.ones(3, dtype=torch.bfloat16), "BFloat16; .* of a type that NumPy has"),
        (torch.eye(3).to_sparse(), "Sparse"),
        (torch.ones(3, dtype=torch.int64), r"dtype is int64.*values 1\.\.1 fit"),
    ):
        with pytest.raises(ina.UnsupportedArray, match=message):
            alone.allreduce(tensor)
    for out, message in (
        (torch.ones(1).expand(3), "elements of out share memory"),
        (torch.ones(3, requires_grad=True), "out is a torch.Tensor that NumPy cannot read"),
        (torch.ones(3, dtype=torch.float64), r"out is float64\(3,\), must be like the array: float32\(3,\)"),
    ):
        with pytest.raises(ina.UnsupportedArray, match=message):
            alone.allreduce(ones, out=out)


def test_float64_beyond_float32_is_named_for_what_it_is() -> None:
    def body(comm: ina.Communicator) -> list[Any]:
        values = np.ones(200)
        values[70] = 1e300 if comm.rank == 1 else 1
        with pytest.raises(ina.NonFiniteError) as caught:
            comm.allreduce(values)
        assert caught.value.element == 64
        propagated = comm.allreduce(values, nonfinite="propagate")
        assert np.isnan(propagated[64:96]).all()
        assert (propagated[96:] == 2).all()
        return [str(caught.value)]

    (other,), (holder,) = run_ranks(2, body)
    limit = (
        "beyond the range of float32 (3.4e+38), in which float64 is summed, "
        "in the packet that starts at element 64"
    )
    assert holder.startswith(f"job 7: 1e+300 (element 70), {limit}")
    assert other.startswith(f"job 7: NaN, infinity or a number {limit}")


def test_a_float32_that_is_not_finite_is_called_that(alone: ina.Communicator) -> None:
    with pytest.raises(
        ina.NonFiniteError, match="job 0: NaN or infinity in the packet that starts at element 1"
    ):
        alone.allreduce(np.array([1, np.inf], np.float32))
    with pytest.raises(ina.NonFiniteError, match=r"1e\+300 \(element 1\), beyond the range of float32"):
        alone.allreduce(np.array([1, 1e300]))


@pytest.mark.filterwarnings("error")
def test_a_sum_beyond_float16_is_infinite_without_a_word() -> None:
    with SocketSwitch(2) as switch:
        body = lambda comm: comm.allreduce(np.array([60000, 1], np.float16)).tolist()  # noqa: E731
        assert on_every_rank(switch.configs, body) == [[np.inf, 2]] * 2


WARNS_ONCE = """
import numpy as np
import hostlib as ina
ina.init()
ina.allreduce(np.ones(3, np.float32))
ina.allreduce(np.ones(3))  # line 6
ina.allreduce_async([1.0]).wait()
ina.Communicator(None).reduce(2.5)
"""


@pytest.mark.parametrize(("silence", "times"), [("", 1), ("ina.PrecisionWarning", 0)])
def test_float64_warns_once_at_the_line_that_called(tmp_path: Path, silence: str, times: int) -> None:
    script = tmp_path / "train.py"
    text = WARNS_ONCE
    if silence:
        text = text.replace(
            "ina.init()", f"__import__('warnings').simplefilter('ignore', {silence}); ina.init()"
        )
    script.write_text(text)
    done = subprocess.run(
        [sys.executable, script], cwd=ROOT, env={"PYTHONPATH": str(ROOT)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("PrecisionWarning: float64") == times
    assert done.stderr.count(f"{script}:6: ") == times


def test_no_tensor_library_is_imported() -> None:
    code = "import sys, hostlib; hostlib.init(); hostlib.barrier(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
