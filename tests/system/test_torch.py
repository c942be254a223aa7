"""The backend "ina" of torch.distributed: every call beside gloo, unusual input, and groups that break."""

from __future__ import annotations

import json
import os
import re
import shlex
import statistics
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import hostlib
from ina.run.groups import slots_to_try
from tests.effort import if_thorough
from tests.extras import needs
from tests.system.attached import open_switch
from tests.system.command import ROOT, TORCHRUN, WORKERS, ina, report, until
from tests.system.sharded import PACKET_BYTES, both
from tests.system.torch_group import Ranks

SCRIPTS = str(WORKERS / "torch_scripts.py")


def torchrun(*script: object, **variables: str) -> None:
    """Run one of the scripts as two ranks, to its good end."""
    done = subprocess.run(
        [*TORCHRUN, "--nproc-per-node", "2", SCRIPTS, *map(str, script)],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_every_call_agrees_with_gloo(ranks: Ranks) -> None:
    for result in ranks.results("agree_with_gloo"):
        assert result["calls"] > 800
        assert result["differ"] == []
        assert result["beyond"]
        assert all(
            re.search("(AVG torch.int(32|64)|^(?!.*reduce).* torch.int16) ", name)
            for name in result["beyond"]
        )
        paths = result["paths"]
        for name in ("float32", "float16", "bfloat16", "int32", "int64"):
            assert set(paths[f"allreduce sum {name}"]) == {"switch"}
            assert set(paths[f"reduce sum {name}"]) == {"switch"}
        assert set(paths["allreduce avg bfloat16"]) == {"switch"}
        assert set(paths["allreduce_coalesced sum float32"]) == {"switch"}
        for name in (
            *("broadcast float32", "broadcast bool", "allgather int64", "all_gather_single uint8"),
            *("reduce_scatter sum float32", "reduce_scatter_single avg bfloat16"),
            *("reduce_scatter_single sum int32", "all_gather_single_coalesced float32"),
            *("reduce_scatter sum int64", "reduce_scatter_single sum int64"),
            *("reduce_scatter_single_coalesced sum float32", "reduce_scatter_single_coalesced avg float32"),
        ):
            assert set(paths[name]) == {"switch"}, name
        for name in ("allreduce max float32", "allreduce sum int8", "reduce_scatter sum int8", "barrier"):
            assert set(paths[name]) == {"gloo"}
        assert {path for taken in result["sub"].values() for path in taken} == {"gloo"}


def test_integers_are_averaged_and_all_types_move(ranks: Ranks) -> None:
    for rank, found in enumerate(ranks.results("more_than_gloo")):
        for dtype in ("int32", "int64"):
            assert found[f"mean torch.{dtype}"] == [2**31 - 1, -7, 4]  # -7.5, rounded towards zero
            assert found[f"shards torch.{dtype}"] == ([[2**31 - 1, -7]] if rank == 0 else [[4, 4]])
        for dtype in ("int16", "uint16", "bool", "uint8", "complex64"):
            assert all(found[f"moved torch.{dtype}"]), (dtype, found)


def test_a_model_may_go_after_its_group() -> None:
    """With torch's own gloo group inside it would wait for ever: its thread and the model for each other."""
    command = [sys.executable, SCRIPTS, "models_outlive_groups"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "over\n"), done.stderr


def test_unusual_input_is_summed_or_refused_by_name(ranks: Ranks) -> None:
    for rank, result in enumerate(ranks.results("inputs")):
        expected = {
            "strided": [[0, 1, 4, 3], [8, 5, 12, 7], [16, 9, 20, 11], [24, 13, 28, 15]],
            "transposed": [[0, 6], [2, 8], [4, 10]],
            "empty": [],
            "scalar": 3.0,
            "strided broadcast": [[0, rank], [8, 2 if rank else 8], [12, 3 if rank else 12], [4, 3]],
            "strided gathered": [[[0, 2], [1, 3]], [[1, 3], [2, 4]]],
            "strided scattered": [[3, 7], [11, 15]][rank],
            "strided in gloo": [[1, 3, 5], [2, 6, 10]],
            "negated": [0, -1],
            "nan": [True, True],
            "inf": [True, True],
            "after": [2, 2],
        }
        assert {name: result[name] for name in expected} == expected
        assert result["half inf"]
        for call in ("broadcast", "all_gather_single", "reduce_scatter sum"):
            assert set(result["paths"][f"{call} float32"]) == {"switch"}, call
        assert result["paths"]["allgather float32"] == {"gloo": 1}
        for name, kind, text in (
            ("overlapping", "UnsupportedArray", "elements of out share memory"),
            ("device", "UnsupportedArray", "a tensor is on meta, must be on the CPU: pass tensor.cpu()"),
            ("device of gloo", "UnsupportedArray", "a tensor is on meta"),
            ("uneven", "RuntimeError", "invalid tensor size"),
            ("overflow", "SumOverflow", "left the int32 range"),
            ("options", "ValueError", "pg_options is"),
            ("twice", "ValueError", "twice"),
            ("bucket of gloo", "TypeError", 'the group is of backend "gloo", must be of backend "ina"'),
            ("destroyed", "NotInitialized", "the process group was destroyed"),
            ("destroyed here", "ValueError", "has not been initialized"),
            ("again", "NotInitialized", "cannot be joined again"),
        ):
            assert result[name][0] == kind, (name, result[name])
            assert text in result[name][1]
        assert result["forked"].count("NotInitialized") == 2


def test_infinity_raises_if_asked_to(ranks: Ranks) -> None:
    for (kind, text), after in ranks.results("nonfinite_raised", INA_NONFINITE="raise"):
        assert (kind, "NaN or infinity" in text) == ("NonFiniteError", True)
        assert after == [2]


def test_float64_takes_the_way_that_the_environment_says(ranks: Ranks) -> None:
    for variables, path in (
        ({}, "gloo"),
        ({"INA_FLOAT64": "gloo"}, "gloo"),
        ({"INA_FLOAT64": "switch"}, "switch"),
    ):
        for exact, paths in ranks.results("sums_of_float64", **variables):
            assert exact == (path == "gloo")
            assert paths == {"allreduce sum float64": {path: 1}}


def test_the_hook_trains_as_plain_sums_do(ranks: Ranks) -> None:
    first, second = ranks.results("hook")
    assert first["weights"] == second["weights"]
    assert first["largest"] < 1e-5
    in_16, in_8, in_4 = first["coarse"]
    assert 1e-7 < in_16 < 1e-2
    assert in_16 < in_8 < 0.1
    assert in_8 < in_4 < 1
    kind, text = first["refused"]
    assert kind == "ValueError"
    assert "error_feedback needs numbers to be one of ('block16', 'block8', 'block4'), not" in text
    assert first["paths"]["allreduce avg float32"]["switch"] >= 6
    assert first["name"] == ["0.weight", "0.bias … 2.bias (3 tensors)"]
    assert first["layer"] == [[0, 4], [2, 4]]


def test_tensors_of_a_device_are_copied_down_summed_and_copied_up_in_chunks(ranks: Ranks) -> None:
    """The device is one whose copies are done later (`staging_scenarios`)."""
    first, second = ranks.results("staged")
    for result in (first, second):
        assert (result["wrong"], result["large"], result["chunks"]) == ([], [2.0], [100, 100])
        assert result["overlap"], "a chunk goes up before the last one has come down"
        kind, text = result["overflow"]
        assert (kind, "left the int32 range" in text) == ("SumOverflow", True)
        assert result["paths"] == {"switch": 8}
    assert (first["root"], second["root"]) == ([1.0], [3.0])
    assert first["gradients"] == second["gradients"]


def test_a_copy_that_fails_ends_the_job_and_feedback_on_a_device_is_refused(ranks: Ranks) -> None:
    other, failed = ranks.errors("staged_copy_that_fails")
    assert failed[0] == "JobFault"
    assert "its array was not copied from the device: RuntimeError('CUDA error: an illegal" in failed[1]
    assert other[0] == "PeerLost"
    for _, text in ranks.errors("staged_with_residual"):
        assert "error feedback is for tensors on the CPU" in text


def test_one_rank_needs_no_switch(ranks: Ranks) -> None:
    [[values, paths]] = ranks.results("alone", size=1)
    assert values == [1, 1]
    assert {path for taken in paths.values() for path in taken} == {"gloo"}


@pytest.mark.parametrize(
    ("scenario", "text"),
    [
        (
            "other_shapes",
            "call 1 is allreduce sum float32 of 3 at rank 0, but allreduce sum float32 of 4 at rank 1",
        ),
        (
            "other_ways",
            "call 1 is allreduce sum float32 of 3 at rank 0, but allreduce max float32 of 3 at rank 1",
        ),
        ("other_calls", "call 0 is allreduce max float32 of 3 at rank 0, but barrier at rank 1"),
    ],
)
def test_ranks_that_differ_are_named_with_their_calls(ranks: Ranks, scenario: str, text: str) -> None:
    for kind, said in ranks.errors(scenario, INA_STALL_S="0.5"):
        assert kind == "RanksDisagree", said
        assert text in said


def test_buckets_that_differ_are_named_by_their_parameters(ranks: Ranks) -> None:
    for kind, said in ranks.errors("other_buckets", INA_STALL_S="0.5"):
        assert kind == "RuntimeError", "of DDP's"
        assert "RanksDisagree" in said
        first, second = (f"{name}.0.weight … {name}.2.bias (4 tensors)" for name in ("encoder", "decoder"))
        assert f"{first} at rank 0, but" in said
        assert f"{second} at rank 1" in said


def test_a_hook_that_fails_ends_its_rank_and_the_others_hear_of_it(ranks: Ranks) -> None:
    other, failed = ranks.errors("hook_that_fails")
    assert "a mistake in a hook" in failed[1]
    assert "PeerLost" in other[1]
    assert "rank 1" in other[1]


def test_a_rank_that_is_terminated_is_named(ranks: Ranks) -> None:
    other, terminated = ranks.run("terminated")
    assert terminated == {"status": -15}
    assert other["error"][0] == "PeerLost"
    assert "lost rank 1" in other["error"][1]


def test_time_outs(ranks: Ranks) -> None:
    (early, late, completed, success), _ = ranks.results("too_late")
    assert early == ["WaitTimeout", "allreduce sum float32 of 3 is not done within 0.2 s"]
    assert late[0] == "PeerTimeout"
    assert "rank 1" in late[1]
    assert completed
    assert not success


def test_a_group_that_a_rank_makes_late_is_refused_on_all_after_its_own_time_out(ranks: Ranks) -> None:
    """The others once waited for as long as the default group's time-out, or for ever."""
    for said, waited_s, total in ranks.results("late_in_a_group"):
        why = "rank 1 did not make the group of ranks 0, 1 within 1 s, its time-out"
        assert said == ["RendezvousError", why]
        assert waited_s < 8, "1 s, on a loaded machine"
        assert total == 2.0, "and the default group goes on"


def test_abort_ends_what_is_under_way(ranks: Ranks) -> None:
    errors, _ = ranks.results("aborted")
    assert [kind for kind, _ in errors] == ["JobFault", "JobFault", "JobFault"]
    assert all("aborted by this rank" in text for _, text in errors)


def test_callbacks_of_futures_may_wait_for_further_collectives(ranks: Ranks) -> None:
    first, second = ranks.results("powersgd")
    assert first == second
    assert first[1] == ["switch"]


def test_a_compiled_model_trains_as_it_does_without_compiler(ranks: Ranks) -> None:
    for apart, learns, paths in ranks.results("compiled"):
        assert apart < 1e-5
        assert learns
        assert paths == ["switch"]


def test_ranks_may_differ_in_whether_they_wait(ranks: Ranks) -> None:
    (few, mean, *sums), (many, other_mean, *other_sums) = ranks.results("uneven_inputs")
    assert (few, many) == (2, 5)
    assert sums == other_sums == [[2.0], [2.0]]
    assert mean != other_mean, "gradients after rank 0 has joined are rank 1's alone"


def test_sharded_training_agrees_with_gloo_and_takes_the_switch_alone(ranks: Ranks) -> None:
    """FSDP1 and 2, HSDP, ZeroRedundancyOptimizer, tensor parallel: no call of the loop goes through gloo."""
    for found in ranks.results("sharded", 4):
        assert list(found["ina"]) == [
            *("fsdp1", "hybrid_fsdp1", "fsdp2", "fsdp2_in_bfloat16", "hsdp", "zero", "tensor_parallel"),
            "tensor_parallel_and_fsdp2",
        ]
        for name, way in found["ina"].items():
            assert set(way["paths"]) == {"switch"}, (name, way)
            bound = 1e-3 if "bfloat16" in name else 1e-5
            expected = found["gloo"][name]["losses"]
            assert way["losses"] == pytest.approx(expected, abs=bound), name
            assert min(expected) < 0.9 * expected[0], "it learns"


def test_an_unmodified_script_of_hsdp_trains_as_with_gloo(ranks: Ranks) -> None:
    """Its groups share the few slots of the job, and its fallback server."""
    options = "--program shared --slots 40 --port-kind udp --loss 0.001"
    for losses, expected, paths in ranks.results("sharded_example", 4, INA_OPTIONS=options):
        assert paths == ["switch"]
        assert losses == pytest.approx(expected, abs=1e-5)


def test_groups_have_slots_of_their_own_or_go_through_gloo(ranks: Ranks) -> None:
    """The job has half the slots; a group gets a quarter of its job's, so that four find room at once."""
    for rank, rounds in enumerate(ranks.results("grouped", 4, INA_OPTIONS="--slots 4096")):
        for sums, paths, sum_of_all in rounds:
            assert sum_of_all == [6.0]
            if rank != 2:
                assert sums == [[4.0 + 30 * number] for number in range(5)]
                assert paths == [{"switch": 1}] * 4 + [{"gloo": 1}]


@pytest.mark.parametrize(
    ("slots", "tries"), [(4096, [1024, 512, 256, 128, 64]), (600, [150, 75]), (64, [64])]
)
def test_groups_ask_for_fewer_slots_where_there_are_no_more(slots: int, tries: list[int]) -> None:
    assert slots_to_try(slots) == tries


def test_a_group_ends_with_its_ranks_and_no_other_does(ranks: Ranks) -> None:
    first, second, third, dead = ranks.run("group_of_a_dead_rank", 4, INA_OPTIONS="--slots 4096")
    assert dead == {"status": 3}
    assert third == {"result": None}
    for place, answer in ((1, first), (0, second)):
        error, reduced, sums, places, refused = answer["result"]
        assert re.match("PeerLost: .*lost rank 1", error), "which is rank 3 of the job"
        assert reduced == [4.0] * 3
        assert (sums, places) == ([[3.0]] * 3, [place] * 3)
        assert (refused[0], "slots are asked for; 0 are free" in refused[1]) == ("RendezvousError", True)


def test_processes_that_torchrun_starts_again_do_not_read_what_their_predecessors_left(ranks: Ranks) -> None:
    assert ranks.results("restarted", size=1) == [[False, True, False, False, False]]


def test_a_tensor_can_be_resized_after_its_sum(ranks: Ranks) -> None:
    assert ranks.results("resized") == [[0] * 5] * 2


def test_no_thread_outlives_a_process_that_does_not_shut_down() -> None:
    """It would abort the process if it came back from torch while the interpreter ends.

    The script does not import the backend: torch finds it.
    """
    done = ina("run", "-np", "2", "--", sys.executable, SCRIPTS, "ends_without_shutdown", status=0)
    assert sorted(re.findall("left at exit: (.*)", done.stdout)) == ["", ""]
    assert done.stdout.count("summed though nothing waits for it: True") == 2


def test_ranks_attach_to_the_switch_of_the_environment_again_with_the_same_store(ranks: Ranks) -> None:
    """They have the variables of torchrun; rank 0 has the job admitted there, and it is gone in the end."""
    with open_switch() as attached:
        _, switch, *options = attached.options
        results = ranks.results("joined_again", INA_SWITCH=switch, INA_OPTIONS=shlex.join(options))
        # what has admitted them takes them off once both ranks have left
        until(lambda: not report("slots", "--switch", switch)["metrics"]["jobs"])
    sums = [[[4.0] * 3, ["switch"]], *([[2.0 * number] * 3, ["switch"]] for number in (2, 3, 4, 5))]
    for found, left in results:
        assert found == sums
        (_, (descriptors, threads), *_, (later_descriptors, later_threads)) = left
        # one more `ina admit`, and its thread, may be about to end; each round once left eight and three
        assert later_descriptors <= descriptors + 3, left
        assert later_threads <= threads + 2, left


def test_groups_of_the_same_ranks_leave_nothing_behind(ranks: Ranks) -> None:
    """Each once left three threads and six descriptors of gloo."""
    for (descriptors, threads), (later_descriptors, later_threads), received in ranks.results("groups_again"):
        assert later_descriptors <= descriptors + 2
        assert later_threads <= threads + 2
        assert received == 2.0, "and no message of an earlier group"


def test_fifty_rounds_of_joining_and_leaving_leave_nothing(tmp_path: Path) -> None:
    """Each round once left five descriptors and three threads. The first rounds make what later ones use."""
    rounds = 50
    torchrun("rounds", rounds, tmp_path / "left")
    children: list[int] = []
    for rank in range(2):
        left = json.loads((tmp_path / f"left.{rank}").read_text())
        children += map(int, left["children"])
        times, descriptors, threads = zip(*left["rounds"], strict=True)
        print(f"rank {rank}: {1e3 * statistics.median(times):.0f} ms a round in the median")
        assert len(times) == rounds
        for held in (descriptors, threads):  # one of a round may be about to end, but not in ten
            assert min(held[-10:]) <= min(held[5:25]), held
    assert len(children) == 1, "the one 'ina admit' of rank 0"
    until(lambda: not Path(f"/proc/{children[0]}").exists())  # it removes the job first


@pytest.mark.parametrize(
    "library", [pytest.param(name, marks=needs(name)) for name in ("accelerate", "transformers")]
)
def test_libraries_that_know_only_gloo_train_through_the_switch(library: str, tmp_path: Path) -> None:
    torchrun("trained_by", library, tmp_path / "said", HF_HUB_OFFLINE="1", INA_AS="gloo")
    first, second = (json.loads((tmp_path / f"said.{rank}").read_text()) for rank in range(2))
    assert first["learnt"]
    assert first["weights"] == second["weights"], "on other data"
    for said in (first, second):
        assert said["backend"] == "ina"
        assert {*said["paths"]["allreduce sum float32"]} == {"switch"}, "DDP's buckets"


def test_an_unmodified_script_trains_under_torchrun_as_with_gloo(ranks: Ranks, tmp_path: Path) -> None:
    """Must agree within what the sums' error can do to the losses.

    A weight moves by the learning rate times the average gradient, whose error per step is that of a sum over
    the ranks divided by their number; a loss, by the sum over all weights of how far they are off times its
    derivatives. No element of a rank's gradient is larger than 1 here: inputs and errors are within 0..1.
    """
    epochs, size, steps, weights = 2, 4, 5, 64 * 128 + 128 + 128 * 10 + 10
    file = tmp_path / "losses"
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(size)),
            *("examples/torch_ddp.py", "--epochs", str(epochs), "--losses", str(file)),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    found, expected = json.loads(file.read_text()), ranks.results("example_with_gloo", size)[0]
    bound = epochs * steps * 0.2 * hostlib.error_bound(1.0, size) / size * weights
    assert bound < 0.01
    assert expected[0] - expected[1] > 0.05, "it learns"
    for mine, other in zip(found, expected, strict=True):
        assert abs(mine - other) <= bound + 1e-6


# --------------------------------------------------------------------- sharded training under torchru


@pytest.mark.slow
@pytest.mark.parametrize("replicas", [2, pytest.param(1, marks=if_thorough())], ids=("HSDP", "FSDP2"))
def test_links_carry_the_least_that_calls_need_and_a_vote_for_each_small_sum(replicas: int) -> None:
    gloo, ina, rows = both(replicas, epochs=1)
    assert ina.losses == pytest.approx(gloo.losses, abs=1e-5)
    assert len(gloo.losses) == 1
    assert ina.paths == ["switch"]
    groups = {(row.rank, row.group) for row in rows}
    assert groups == {(rank, group) for group in ina.jobs.values() for rank in group}, "each port is counted"
    for row in rows:
        for least, found in (
            (row.least.up, row.captured.up),
            (row.least.down, row.captured.down),
        ):
            votes = (found - least) / PACKET_BYTES
            assert 0 <= votes <= row.sums, row
