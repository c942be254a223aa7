"""``ina demo``: trains a network with sums in the switch, and compares the weights with a single process."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np

from controller.vocabulary import Job
from hostlib.launch import command_line
from ina.cli import options
from ina.cli.command import Declared, Failure, Json, Listing, Reply, Result, plural
from ina.cli.execute import Live, summary
from ina.cli.output import err, out
from ina.run.launch.spec import NAMELESS, FabricSpec, LaunchSpec, metrics
from ina.run.live import WorkerOptions, run_one
from ina.run.switches.fabric import open_fabric

DIGITS = tuple(command_line.module("hostlib.demos.digits"))


def demo(
    workers: Annotated[int, Declared(*options.WORKERS, help="Set the number of workers, 1 to 32.")] = 4,
    lanes: options.Lanes = 256,
    loss: options.Loss = 0.0,
    seed: options.Seed = 0,
    json: Json = False,
) -> Reply:
    """Train on handwritten digits with gradients summed in the switch, and compare with a single process.

    The single process computes the same shards of the same batches and averages them in double precision.
    Fails if the weights differ by more than quantisation allows. The digits come with scikit-learn (pip
    install 'ina[examples]'); without it, generated digits are used.

    Examples:
        ina demo

        ina demo -np 8 --loss 0.02
    """
    with tempfile.TemporaryDirectory() as directory:
        switch_file, alone_file = Path(directory) / "switch.npz", Path(directory) / "alone.npz"
        spec = _launch([*DIGITS, "--save", str(switch_file)], workers)
        fabric = FabricSpec(lanes=lanes, impairments=options.FaultOptions(loss=loss).impairments(), seed=seed)
        console = err if json else out
        console.print(f"{plural(workers, 'worker')}, every gradient summed in the switch", style="bold")
        with Live({"": workers}, quiet=json) as live, open_fabric(fabric, [workers]) as switches:
            result = run_one(switches, spec, WorkerOptions(on_output=live.output), live.update)
        console.print("the same batches in one process", style="bold")
        command = [*DIGITS, "--shards", str(workers), "--save", str(alone_file)]
        with Live({"": 1}, quiet=json) as live:
            _run_here(_launch(command, 1), live)
        comparison = compare(switch_file, alone_file)
    numbers = metrics(result)
    setup = {"workers": workers, "lanes": lanes, "loss": loss, "seed": seed}
    differ = "the weights trained through the switch differ by more than quantisation allows"
    return Reply(
        Result("demo", setup, numbers | comparison),
        [summary({"": numbers}), _comparison(comparison)],
        "" if comparison["agrees"] else differ,
    )


def _launch(command: Sequence[str], workers: int) -> LaunchSpec:
    return LaunchSpec(job=Job(name=NAMELESS, workers=workers, command=tuple(command)))


def _run_here(spec: LaunchSpec, live: Live) -> None:
    # as many threads as in the workers, so that NumPy adds in the same order
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", **spec.environment()}
    assert spec.job.command is not None
    with subprocess.Popen(spec.job.command, env=environment, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            for line in process.stdout:
                live.output(spec, 0, line, False)
        except BaseException:
            process.kill()
            raise
    if process.returncode:
        raise Failure(f"the single process ended with status {process.returncode}")


def compare(switch_file: Path, alone_file: Path) -> dict[str, float]:
    """Compare the networks saved in two files; return the results of the comparison by name.

    These are the two accuracies (0 to 1), the largest and the allowed difference between weights, and
    "agrees": 1.0 if the accuracies are equal and the largest difference is allowed, else 0.0.
    """
    with np.load(switch_file) as switch, np.load(alone_file) as alone:
        names = [name for name in alone.files if name.startswith("arr_")]
        difference = max(float(np.abs(switch[name] - alone[name]).max()) for name in names)
        bound = float(alone["bound"])
        numbers = {
            "accuracy_switch": float(switch["accuracy"]),
            "accuracy_alone": float(alone["accuracy"]),
            "largest_weight_difference": difference,
            "allowed_weight_difference": bound,
        }
    agrees = numbers["accuracy_switch"] == numbers["accuracy_alone"] and difference <= bound
    return numbers | {"agrees": float(agrees)}


def _comparison(numbers: dict[str, float]) -> Listing:
    same = numbers["accuracy_switch"] == numbers["accuracy_alone"]
    within = numbers["largest_weight_difference"] <= numbers["allowed_weight_difference"]
    rows = [
        (
            "test accuracy",
            f"{numbers['accuracy_switch']:.4f}",
            f"{numbers['accuracy_alone']:.4f}",
            "same" if same else "DIFFERS",
        ),
        (
            "largest weight difference",
            f"{numbers['largest_weight_difference']:.3g}",
            f"bound {numbers['allowed_weight_difference']:.3g}",
            "within" if within else "EXCEEDS",
        ),
    ]
    return Listing("comparison", ["", "through the switch", "one process", "verdict"], rows)
