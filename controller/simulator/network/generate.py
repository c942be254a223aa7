"""Random jobs and trace jobs that train real models, with computing times from the models' operations."""

from __future__ import annotations

import random
from collections.abc import Sequence

from controller.errors import BadSpec
from controller.policies.scheduling.policy import Submission
from controller.vocabulary import Job, Topology, shapes
from controller.vocabulary.documents import hint

MODELS = ("resnet50", "vgg16", "bert-base", "gpt2")
WORKERS = ((1, 0.3), (2, 0.2), (4, 0.25), (8, 0.15), (16, 0.1))
"""Pairs of a number of workers and its frequency; numbers too large for a cluster are left out."""


def generate(
    jobs: int,
    topology: Topology,
    *,
    seed: int = 0,
    models: Sequence[str] = MODELS,
    gap_s: float = 0.0,
    deadlines: float = 0.0,
    slack: float = 2.0,
) -> list[Job]:
    """Return jobs of random models and sizes.

    Args:
        jobs: Number of jobs.
        topology: The servers.
        seed: Seed of all random draws.
        models: Names of the models to draw from.
        gap_s: Mean time between arrivals (Poisson); 0: all jobs arrive at once.
        deadlines: Fraction of the jobs with a deadline.
        slack: Ratio of a job's deadline to the job's duration without communication.

    Raises BadSpec for options out of range.
    """
    if jobs < 0 or not 0 <= deadlines <= 1 or not slack > 1 or gap_s < 0 or not models:
        raise BadSpec(
            f"{jobs} jobs, {deadlines} with deadlines at slack {slack}, gap {gap_s} s: want at least one"
            " model, 0 or more jobs, 0 to 1 with deadlines, a slack above 1, a gap of 0 or more"
        )
    rng = random.Random(seed)
    sizes = [(count, share) for count, share in WORKERS if count <= topology.gpus] or [(1, 1.0)]
    drawn, now_s = [], 0.0
    for number in range(1, jobs + 1):
        model = rng.choice(list(models))
        workers = rng.choices([count for count, _ in sizes], [share for _, share in sizes])[0]
        iterations = rng.randrange(200, 5000)
        compute_s = shapes.compute_s(model)
        deadline_s = slack * iterations * compute_s
        drawn.append(
            Job(
                name=f"job{number}",
                workers=workers,
                layers_bytes=shapes.layers_bytes(model),
                iterations=iterations,
                compute_s=compute_s,
                arrival_s=now_s,
                deadline_s=deadline_s if rng.random() < deadlines else None,
            )
        )
        now_s += rng.expovariate(1 / gap_s) if gap_s else 0.0
    return drawn


def from_trace(
    specs: Sequence[Submission], *, models: Sequence[str] = MODELS, seed: int = 0, slack: float | None = None
) -> list[Job]:
    """Return the jobs of a scheduling trace (`controller.simulator.traces`), with one worker per GPU.

    The computing time is the iteration's time without its network stage.

    Args:
        specs: The trace's jobs.
        models: Models to draw from, for jobs whose model's name does not begin with a name in
            `shapes.SHAPES`: they get the layers of one of these models, drawn once per model name.
        seed: Seed of the draws.
        slack: Ratio of each job's deadline to its duration; None: the trace's deadline, if any.

    Raises BadSpec for an unknown model, or a slack of at most 1.
    """
    if unknown := [model for model in models if model not in shapes.SHAPES]:
        raise BadSpec(f"model {unknown[0]!r} is unknown; {hint(unknown[0], shapes.SHAPES)}")
    if slack is not None and not slack > 1:
        raise BadSpec(f"slack is {slack}; want more than 1")
    rng = random.Random(seed)
    known: dict[str, str] = {}
    jobs = []
    for spec in specs:
        shape = known.setdefault(spec.model, _shape_of(spec.model) or rng.choice(list(models)))
        job = Job(
            name=spec.name,
            workers=spec.gpus,
            layers_bytes=shapes.layers_bytes(shape),
            iterations=max(1, round(spec.iterations)),
            compute_s=spec.iteration_s - (spec.stages_s[-1] if spec.stages_s else 0.0),
            arrival_s=spec.arrival_s,
            deadline_s=spec.deadline_s if slack is None else slack * spec.duration_s,
            stages_s=spec.stages_s,
        )
        jobs.append(job)
    return jobs


def _shape_of(model: str) -> str | None:
    plain = "".join(letter for letter in model.lower() if letter.isalnum())
    matches = [name for name in shapes.SHAPES if plain and plain.startswith(name.replace("-", ""))]
    if plain.startswith("bert") and not matches:
        return "bert-base"
    return max(matches, key=len, default=None)
