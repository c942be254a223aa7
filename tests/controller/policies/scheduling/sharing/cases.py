"""Kinds of job for the tests: their pairs on one GPU, and small clusters' jobs."""

from dataclasses import replace

from hypothesis import strategies as st

from controller.policies.scheduling import JobState, Submission
from controller.policies.scheduling.sharing.pairs import (
    KindDemand,
    Load,
    MadeUpPairs,
    Scaling,
    make_demands,
    make_sync,
)

PAIRS = MadeUpPairs(
    {
        "compute": KindDemand(0.9, 0.05, 0.0),
        "memory": KindDemand(0.1, 0.8, 0.05),
        "host": KindDemand(0.05, 0.05, 0.7),
        "light": KindDemand(0.1, 0.05, 0.1),
        "rude": KindDemand(0.6, 0.2, 0.1, impact=3.0),
        "frail": KindDemand(0.4, 0.4, 0.1, sensitivity=3.0),
    }
)
LAW = Scaling(PAIRS, {"memory": 0.2, "light": 0.0})
KINDS = tuple(PAIRS.kinds)
NAMES = [f"k{n}" for n in range(24)]
ROOM_FOR_ALL = {name: replace(made, held=0.0) for name, made in make_demands(NAMES, seed=5).items()}
MANY = Scaling(MadeUpPairs(ROOM_FOR_ALL), make_sync(NAMES))


def spec(
    name: str, kind: str = "light", *, at: float = 0, gpus: int = 1, lasts_s: float = 1000
) -> Submission:
    return Submission(name, at, gpus, lasts_s, 1.0, model=kind)


def job(name: str, kind: str = "light", *, order: int = 0, gpus: int = 1) -> JobState:
    return JobState(spec(name, kind, gpus=gpus), order, 1.0, 0.0)


@st.composite
def traces(draw: st.DrawFn) -> list[Submission]:
    rows = draw(
        st.lists(
            st.tuples(
                st.sampled_from(KINDS),
                st.integers(0, 4000),
                st.sampled_from([1, 1, 1, 2, 3, 4, 8]),
                st.integers(1, 4000),
            ),
            min_size=1,
            max_size=25,
        )
    )
    return [spec(str(i), k, at=t, gpus=g, lasts_s=s) for i, (k, t, g, s) in enumerate(rows)]


def beside(interference: Scaling, kind: str, gpus: int, *others: tuple[str, int]) -> float:
    return interference.speed(Load(kind, gpus), [Load(*other) for other in others])
