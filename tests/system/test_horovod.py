"""Horovod's interface: every collective, training beside one process, unusual input, and ranks that fail."""

from __future__ import annotations

import os
import queue
import re
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.extras import needs
from tests.system.command import WORKERS, ina
from tests.system.torch_group import Ranks

pytestmark = needs("torch")


def test_reductions_are_those_of_the_ranks_tensors(ranks: Ranks) -> None:
    for wrong, sums, averages in ranks.results("horovod_reductions"):
        assert wrong == []
        assert sums == averages == ["switch"]


def test_tensors_and_objects_move_as_in_horovod(ranks: Ranks) -> None:
    for rank, found in enumerate(ranks.results("horovod_movements")):
        assert found == {
            "allgather": [[0, 0], [1, 1], [1, 1]],
            "grouped": [[[0, 0], [1, 1]], [0, 1]],
            "broadcast": [1],
            "broadcast_": [1, 1],
            "alltoall": [[[0, 10], [1, 1]], [[1, 2, 11, 12], [2, 2]]][rank],
            "equal": [[0, 10], [1, 11]][rank],
            "object": 1,
            "objects": [0, 1],
            "gathered gradient": [[0], [1, 2]][rank],
            "broadcast gradient": [[1.5, 1.5], [0, 0]][rank],
            "exchanged gradient": [[1, 2], [10, 20]][rank],
            "places": [True, rank, 2, rank, 2, 0, 1, True],
            "after": [False, False],
            "threads": [],  # one that is in torch while the interpreter ends aborts the process
        }


def test_gradients_are_those_of_horovod(ranks: Ranks) -> None:
    # ranks 0 and 1 multiply their results by 1 and 2: the average of the gradients is 1.5
    for rank, found in enumerate(ranks.results("horovod_gradients")):
        assert found == {
            "allgather": [[1.5] * (1 + rank)],
            "grouped_allgather": [[1.5] * (1 + rank), [1.5, 1.5]],
            "broadcast": [[1.5 * rank] * 2],
            "reducescatter sum": [[1, 1, 2]],
            "reducescatter average": [[0.5, 0.5, 1]],
            "grouped_reducescatter sum": [[2, 4], [2, 2, 4]],
            "grouped_reducescatter average": [[1, 2], [1, 1, 2]],
        }


GRADIENTS = [[-3.0, -3.0]] * 4
RESULTS: dict[str, tuple[str, int, object]] = {
    "ranks may submit in any order": ("horovod_order", 2, [[[True] * 40, None]] * 2),
    # the thread of operations of a rank that is not in the set ended by KeyError
    "a process set may be used before the others have made it": (
        *("horovod_set_used_before_all_know_it", 3),
        [[2.0, 3.0], [2.0, 3.0], [3.0]],
    ),
    "a process set may be removed while others use it": (
        *("horovod_set_removed_by_others", 2),
        [[[1], [2], [1]], [[], [2], []]],
    ),
    "ranks may begin again before all have left": ("horovod_inits", 3, [[3] * 2] * 3),
    "optimizers have what programs read of Horovod's": (
        *("horovod_optimizer_attributes", 2),
        [[True, [0, 0, 0], ["0.bias", "2.bias", "2.weight"]]] * 2,
    ),
    "parameters that come later are averaged": (
        *("horovod_parameters_that_come_later", 2),
        [[GRADIENTS, ["added", "first", "frozen", "noname.3"]]] * 2,
    ),
    "objects need not be of one type on all ranks": (
        *("horovod_objects_of_other_types", 2),
        [[{"a": 1}, [2], [4, "text"]]] * 2,
    ),
    # 157 packets of values, and one for the vote on which calls to carry out; with a lookahead 190 in all
    "a name foresees exponents": ("horovod_names_foresee", 2, [[3 * 158] * 2] * 2),
    "one process needs no others": ("horovod_alone", 1, [[1, [3, 3], [1], "text", 0, 65]]),
}


@pytest.mark.parametrize(("scenario", "size", "expected"), RESULTS.values(), ids=RESULTS)
def test_ranks_come_to_this(ranks: Ranks, scenario: str, size: int, expected: object) -> None:
    assert ranks.results(scenario, size) == expected


@pytest.mark.parametrize(
    ("how", "status", "said"),
    [
        ("dies", {"status": 3}, "'w': rank 1 has ended"),
        ("is_terminated", {"status": -15}, "'w': rank 1 has ended"),
        ("leaves", {"result": None}, "allreduce 'w': rank 1 has shut down"),
    ],
)
def test_a_rank_that_ends_is_named(ranks: Ranks, how: str, status: dict[str, Any], said: str) -> None:
    survivor, gone = ranks.run(f"horovod_rank_that_ends {how}")
    kind, text = survivor["result"]
    assert (gone, kind, said in text) == (status, "HorovodInternalError", True)


def test_process_sets(ranks: Ranks) -> None:
    for rank, found in enumerate(ranks.results("horovod_sets", 3)):
        *places, total, mean, gathered, stranger, again, beyond, removed = found
        alone = rank == 1
        assert places == [
            [0 if alone else -1, 1, alone],
            [{0: 0, 1: -1, 2: 1}[rank], 2, not alone],
            [rank, 3, True],
        ]
        assert (total, mean, gathered) == ([1] if alone else [2], [1], [1] if alone else [0, 2])
        assert (stranger[0], stranger[1].split("ProcessSet(")[0]) == (
            "ValueError",
            f"rank {rank} is not in ",
        )
        assert again == ["ValueError", "there is a process set of ranks [0, 2] already"]
        why = "the ranks of the process set are [7], must be from 0 to 2, one at least"
        assert beyond == ["ValueError", why]
        assert removed == [True, False]


def test_process_sets_have_slots_of_their_own(ranks: Ranks) -> None:
    """Each is a group, whose sums, gathers and broadcasts go through the switch."""
    expected = {
        (0, 1, 2): [[6.0], [4.0], [2.0], [6], [2.0], [1.0, 2.0, 3.0]],
        (2, 3): [[7.0], [7.0], [3.5], [7], [4.0], [3.0, 4.0]],
    }
    for rank, found in enumerate(ranks.results("horovod_sets_in_the_switch", 4, INA_OPTIONS="--slots 4096")):
        assert [values for values, _ in found] == [
            values for members, values in expected.items() if rank in members
        ]
        for _, paths in found:
            assert {call.split()[0] for call in paths} == {"allreduce", "broadcast", "allgather"}
            assert {path for taken in paths.values() for path in taken} == {"switch"}, paths


def test_a_thread_that_fails_ends_all_collectives_on_all_ranks(ranks: Ranks) -> None:
    here, there = ranks.results("horovod_thread_that_fails")
    for kind, text in here + there:
        assert kind == "HorovodInternalError"
        assert "cannot carry out collectives any more: KeyError: 99" in text


def test_ranks_without_data_add_zeros_until_all_have_joined(ranks: Ranks) -> None:
    first, second = ranks.results("horovod_join")
    assert first == [[[2, 2, 2]] * 2, [], None, 1, [2]]
    sums, averages, error, last, after = second
    assert sums == [[2, 2, 2]] * 2 + [[1, 1, 1]] * 2
    assert averages == [[0.5, 0.5, 0.5]] * 2
    assert error[0] == "HorovodInternalError"
    assert "allreduce 'greatest' after rank 0 has called join(): then only sums and averages" in error[1]
    assert (last, after) == (1, [2])


def test_each_rank_may_be_the_first_without_data(ranks: Ranks) -> None:
    found = ranks.results("horovod_joins_in_turn", 3)
    lasts = {tuple(last) for _, last in found}
    assert len(lasts) == 1
    assert all(last != first for first, last in enumerate(lasts.pop()))
    for rank, (errors, _) in enumerate(found):
        others = [first for first in range(3) if first != rank]
        assert len(errors) == len(others)
        for first, (kind, text) in zip(others, errors, strict=True):
            assert kind == "HorovodInternalError"
            assert f"after rank {first} has called join()" in text


def test_what_is_wrong_or_not_there_is_named(ranks: Ranks) -> None:
    for rank, found in enumerate(ranks.results("horovod_refusals")):
        expected = {
            "shapes": (
                "HorovodInternalError",
                "allreduce average float32 of 3 at rank 0, but allreduce average float32 of 4 at rank 1",
            ),
            "kinds": ("HorovodInternalError", "but broadcast float32 of 3 from rank 0 at rank 1"),
            "roots": (
                "HorovodInternalError",
                "from rank 0 at rank 0, but broadcast float32 of 3 from rank 1",
            ),
            "no rank": ("ValueError", "root_rank is 5, must be a rank of the process set: 0, 1"),
            "no whole rank": ("ValueError", "root_rank is 1.0, must be a rank of the process set: 0, 1"),
            "adasum": ("NotSupported", "op=hvd.Average"),
            "elastic": ("NotSupported", "torchrun --max-restarts"),
            "sparse": ("NotSupported", "pass tensor.to_dense()"),
            "sparse async": ("NotSupported", "tensor.to_dense()"),
            "device": ("UnsupportedArray", "pass tensor.cpu()"),
            "splits": ("ValueError", "give splits"),
            "no tensor": ("TypeError", "not a float"),
            "overflow": ("HorovodInternalError", "SumOverflow"),
            "poll": ("ValueError", "is not under way"),
            "shut down": ("ValueError", "use hvd.init()"),
        }
        if rank:
            expected["twice"] = ("ValueError", "'twice' is under way already")
        for name, (kind, text) in expected.items():
            assert found[name][0] == kind, (name, found[name])
            assert text in found[name][1], (name, found[name])
        assert (found["after"], found["has elastic"]) == ([2], False)


def test_unusual_input_has_a_defined_outcome(ranks: Ranks) -> None:
    for found in ranks.results("horovod_inputs"):
        refusals = {
            "complex": ("HorovodInternalError", "does not support RedOpType.MAX on complex tensors"),
            "hook": ("ValueError", "a mistake in a hook"),
            "forked": ("NotInitialized", "was forked from rank"),
        }
        for name, (kind, text) in refusals.items():
            assert found[name][0] == kind, (name, found[name])
            assert text in found.pop(name)[1]
        assert found == {
            "strided": [[0, 4], [8, 12]],
            "left alone": [[0, 1, 2], [4, 5, 6]],
            "in place": [[0, 1, 4], [8, 5, 12]],
            "empty": [],
            "scalar": 3.0,
            "nan": [True, True],
            "twice": None,
            "after": [2, 2],
        }


def test_nan_raises_if_asked_to(ranks: Ranks) -> None:
    for kind, text in ranks.results("horovod_nan_raised", INA_NONFINITE="raise"):
        assert kind == "HorovodInternalError"
        assert "NonFiniteError" in text


def test_training_is_that_of_one_process_with_all_batches(ranks: Ranks) -> None:
    for off in ranks.results("horovod_training"):
        assert off.pop("fp16") < 2e-3
        assert 1e-4 < off.pop("block8") < 0.05
        assert 1e-4 < off.pop("block4") < 0.3
        assert max(off.values()) < 1e-5, off


def test_the_optimizer_refuses_what_it_cannot_average(ranks: Ranks) -> None:
    for (twice, missing, adasum, predivided, lbfgs, sparse), gradient in ranks.results(
        "horovod_optimizer_refusals"
    ):
        assert twice == "ValueError: names of parameters must differ; given twice: 0.weight"
        assert "leave out 2 of the optimizer's parameters, of shapes (1, 8), (1,)" in missing
        assert adasum.startswith("NotSupported: op is")
        assert "op=hvd.Average only" in predivided
        assert "LBFGS cannot be sent" in lbfgs
        assert "the gradient of noname.0 is sparse: pass sparse_as_dense=True" in sparse
        assert gradient == [[0.5, 0.5], [0.5, 0.5], [0, 0]]


def test_batch_norm_is_that_of_the_whole_batch(ranks: Ranks) -> None:
    for off in ranks.results("horovod_batch_norm"):
        assert max(off) < 1e-5


def test_a_timeline_has_negotiation_and_sum(ranks: Ranks) -> None:
    """Rows, the time of its start and cycles are those that readers of Horovod's files look for."""
    for (_, _, start), (_, _, row), *events in ranks.results("horovod_timeline"):
        assert [*start] == ["start_time_since_epoch_in_micros"]
        kind = row["name"].removesuffix(".w")
        assert kind in ("allreduce", "grouped_allreduce")
        assert [event[:2] for event in events if event[1] != "CYCLE_START"][:4] == [
            ["B", f"NEGOTIATE_{kind.upper()}"],
            ["E", None],
            ["B", kind.upper()],
            ["E", None],
        ]
        assert ["i", "CYCLE_START", None] in events


def test_a_stall_names_tensor_and_ranks(ranks: Ranks) -> None:
    (said, total), (_, other) = ranks.results("horovod_stall", HOROVOD_STALL_CHECK_TIME_SECONDS="0.3")
    about_w = [line for line in said if "allreduce 'w' has waited for" in line]
    assert about_w[0].endswith("submitted by rank 0, missing from rank 1")
    assert total == other == [1, 1, 1]


def test_a_stall_ends_after_the_limit_and_names_tensor_and_ranks(ranks: Ranks) -> None:
    limits = {"HOROVOD_STALL_CHECK_TIME_SECONDS": "0.2", "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS": "0.5"}
    for (kind, first), (_, later) in ranks.results("horovod_stall_that_ends", **limits):
        assert kind == "HorovodInternalError"
        assert re.match(r"allreduce 'only [01]': allreduce 'only [01]' has waited for", first)
        assert re.search(r"submitted by rank ([01]), missing from rank (?!\1)", later)
        assert later.endswith("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS is 0.5")


def test_a_rank_that_outlives_the_first_is_told_without_torchs_stack_traces(ranks: Ranks) -> None:
    _, (kind, text, said) = ranks.results("horovod_after_the_first")
    assert (kind, "cannot be joined again" in text) == ("NotInitialized", True)
    assert "TCPStore" not in said
    assert "frame #" not in said


def test_limits_of_stalls_are_horovods(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from hostlib.horovod.world import _stall_limits

    for given, expected in (
        ({}, (60.0, 0.0)),
        ({"CHECK_TIME": "5", "SHUTDOWN_TIME": "20"}, (5.0, 20.0)),
        ({"SHUTDOWN_TIME": "20"}, (60.0, 0.0)),  # less than the time of the check: there is no end
        ({"CHECK_TIME": "5", "SHUTDOWN_TIME": "20", "CHECK_DISABLE": "1"}, (0.0, 20.0)),
    ):
        with monkeypatch.context() as patch:
            for name, value in given.items():
                suffix = "" if name == "CHECK_DISABLE" else "_SECONDS"
                patch.setenv(f"HOROVOD_STALL_{name}{suffix}", value)
            assert _stall_limits() == expected
    assert "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS is 20, less than" in caplog.text
    monkeypatch.setenv("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "soon")
    with pytest.raises(ValueError, match=r"SHUTDOWN_TIME_SECONDS is 'soon', must be a number of seconds"):
        _stall_limits()


@pytest.mark.parametrize("host", ["", "127.0.0.1"])
def test_ranks_are_connected(host: str) -> None:
    from hostlib.horovod.link import connect

    told: queue.Queue[str] = queue.Queue()

    def first(text: str) -> str:
        for _ in range(2):
            told.put(text)
        return text

    with ThreadPoolExecutor(3) as threads:
        shares = [first, *[lambda _: told.get(timeout=30)] * 2]
        found = [
            threads.submit(connect, rank, 3, host=host, share=share) for rank, share in enumerate(shares)
        ]
        at_0, at_1, at_2 = [each.result(60) for each in found]
    at_2[0].sendall(b"of rank 2")
    assert at_0[2].recv(100) == b"of rank 2"
    for connection in (*at_0.values(), *at_1.values(), *at_2.values()):
        connection.close()


def test_steps_with_a_closure_are_those_of_one_process(ranks: Ranks) -> None:
    for off in ranks.results("horovod_closures"):
        for from_one_process, between_ranks in off.values():
            assert from_one_process < 1e-3
            assert between_ranks == 0.0


def test_two_optimizers_of_parameters_of_the_same_names_train_side_by_side(ranks: Ranks) -> None:
    (first, second), (other_first, other_second) = ranks.results("horovod_two_optimizers")
    assert first == other_first == [[0.25, 1.5], [-0.5, 0.375], -1.0]
    assert second == other_second
    (early, why), (late, later) = second
    assert (early, late) == ("AssertionError", "ValueError")
    assert "call synchronize() first, or freeze the parameters" in why
    assert "the gradient of 0 is averaged by a DistributedOptimizer that was made later" in later


def test_a_script_may_end_with_gradients_on_their_way(tmp_path: Path) -> None:
    """A thread that came back from torch while the interpreter ended aborted the process."""
    os.mkfifo(tmp_path / "lock.fifo")
    script = (str(WORKERS / "torch_scripts.py"), "horovod_ends_amid_gradients")
    plain = ("env", "-u", "PYTHONPATH", sys.executable)  # which ends as programs do elsewhere
    done = ina("run", "-np", "2", "--", *plain, *script, str(tmp_path / "lock"), status=0)
    assert "terminate" not in done.stdout + done.stderr


def losses(output: str) -> list[float]:
    return [float(found) for found in re.findall(r"loss +([0-9.]+)", output)]


def test_horovods_example_learns(ranks: Ranks) -> None:
    output, nothing = ranks.results("example_horovod_digits")
    first, last = losses(output)
    assert last < first
    accuracy = re.search(r"test accuracy ([0-9.]+)", output)
    assert accuracy
    assert float(accuracy[1]) > 0.8
    assert nothing == ""


def test_the_transformer_learns_as_with_gloo(ranks: Ranks) -> None:
    found, expected = (
        losses(ranks.results(f"example_char_transformer {backend}")[0]) for backend in ("ina", "gloo")
    )
    assert len(found) == 10
    assert found[-1] < found[0] - 0.1
    for mine, other in zip(found, expected, strict=True):
        assert abs(mine - other) < 0.01, "Adam's steps follow signs, which the least difference can change"
