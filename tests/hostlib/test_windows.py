"""Congestion controls from outside: found by name, asked in Python and in C, refused with the reason."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

import hostlib as ina
from hostlib import windows
from hostlib._native import NativeKernel
from hostlib.core.congestion import BadLimits, Congestion, Limits, Round, call_control
from tests.hostlib.socket_switch import SocketSwitch
from tests.hostlib.test_communicator import run_ranks
from tests.hostlib.test_fallback_window import shared_network
from tests.hostlib.virtual_network import Impairments

ROOT = Path(__file__).parents[2]
DCTCP = f"{ROOT / 'examples/windows/dctcp.py'}:Dctcp"

OWN = '''
from hostlib.windows import Limits

class Answers:
    """Answers a list, the first at the start."""

    def __init__(self, *answers):
        self.answers = list(answers)

    def start(self, window):
        return self.answers.pop(0)

    def on_round(self, outcome):
        return self.answers.pop(0)

class Raises(Answers):
    def __init__(self):
        super().__init__(2)

    def on_round(self, outcome):
        return 1 // 0

zero = lambda: Answers(0)
not_a_number = lambda: Answers(float("nan"))
fraction = lambda: Answers(1.5)
nothing = lambda: Answers(None)
beyond = lambda: Answers(10**6)
no_claims = lambda: Answers(Limits(4, 0))
negative = lambda: Answers(2, -3)
bypass = lambda: Answers(2, Limits(2, 1))
late = lambda: Answers(1, 2, 4)

class NoMethod:
    def start(self, window):
        return 1

def fails():
    raise OSError("no such model")

number = 5

class Halve:
    """Half the packets and claims after a round with collisions, else one more packet."""

    def start(self, window):
        self.most = self.packets = self.claims = window
        return Limits(window, window)

    def on_round(self, outcome):
        if outcome.collided:
            self.packets = self.packets // 2 or 1
            self.claims = self.claims // 2 or 1
        else:
            self.packets = min(self.packets + 1, self.most)
        return Limits(self.packets, self.claims)
'''

IN_C = """
#include <ina_window.h>
#include <stddef.h>

ina_window_rule steps, halve, zero, status;

/* As Halve above. */
int halve(double state[INA_WINDOW_STATE], int64_t most, const struct ina_round *round,
    struct ina_limits *limits)
{
    if (round == NULL) {
        state[0] = most;
    } else if (round->collided > 0) {
        limits->in_flight = limits->in_flight / 2 + (limits->in_flight == 1);
        state[0] = (int64_t)state[0] / 2 + (state[0] == 1);
    } else {
        limits->in_flight += limits->in_flight < most;
    }
    limits->claims = (int64_t)state[0];
    return 0;
}

/* 1, 2, … 7 packets, of which 3 may claim slots, and again. */
int steps(double state[INA_WINDOW_STATE], int64_t most, const struct ina_round *round,
    struct ina_limits *limits)
{
    state[15] += round == NULL ? 0 : 1;
    limits->in_flight = 1 + (int64_t)state[15] % 7;
    limits->claims = most < 3 ? most : 3;
    return 0;
}

int zero(double state[INA_WINDOW_STATE], int64_t most, const struct ina_round *round,
    struct ina_limits *limits)
{
    limits->in_flight = round == NULL ? most : 0;
    return 0;
}

int status(double state[INA_WINDOW_STATE], int64_t most, const struct ina_round *round,
    struct ina_limits *limits)
{
    return round == NULL ? 0 : 17;
}
"""


@pytest.fixture
def own(write_file: Callable[[str, str], Path]) -> Callable[[str], str]:
    file = write_file("own.py", OWN)
    return lambda name: f"{file}:{name}"


@pytest.fixture(scope="module")
def in_c(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    if shutil.which("cc") is None:
        pytest.skip("needs a C compiler")
    folder = tmp_path_factory.mktemp("rules")
    (folder / "own.c").write_text(IN_C)
    for source in (folder / "own.c", ROOT / "examples/windows/dctcp.c"):
        include = ROOT / "hostlib/_native"
        made = folder / f"{source.stem}.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", f"-I{include}", source, "-o", made], check=True)
    return lambda name: f"{folder / ('dctcp' if name == 'dctcp' else 'own')}.so:{name}"


# ---------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("cubic", r"congestion is 'cubic', must be one of \('fixed', 'aimd', 'a2tp', 'tcp'\); or of"),
        (5, "congestion is 5, must be one of"),
        ("own.py:", "must be one of"),
        ("nowhere.py:Rule", "congestion nowhere.py:Rule: No such file or directory"),
        ("no.such.module:Rule", "congestion no.such.module:Rule: ModuleNotFoundError: No module named 'no'"),
        ("nowhere.so:rule", "congestion nowhere.so:rule: .*cannot open shared object file"),
    ],
)
def test_a_name_that_nobody_has_is_refused_with_what_would_be_one(name: Any, complaint: str) -> None:
    with pytest.raises(ina.ConfigError, match=complaint):
        windows.find(name)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("Missing", "there is no 'Missing' to call; there are Limits, Answers, Raises, zero"),
        ("number", "there is no 'number' to call"),
        ("NoMethod", "NoMethod has no method 'on_round'"),
        ("fails", "OSError: no such model"),
    ],
)
def test_a_file_without_a_rule_is_refused(own: Callable[[str], str], name: str, complaint: str) -> None:
    with pytest.raises(ina.ConfigError, match=complaint):
        windows.find(own(name)).make()


def test_a_file_that_cannot_be_run_is_refused(tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("1 +")
    with pytest.raises(ina.ConfigError, match=r"broken.py:Rule: SyntaxError"):
        windows.find(f"{tmp_path}/broken.py:Rule")


def test_a_shared_object_without_the_function_is_refused(in_c: Callable[[str], str]) -> None:
    with pytest.raises(ina.ConfigError, match="there is no function 'other' in the file"):
        windows.find(in_c("other"))


# ---------------------------------------------------------------------- answers


def answer(control: Congestion, outcome: Round | None = None) -> Limits:
    ask = (lambda: control.start(8)) if outcome is None else (lambda: control.on_round(outcome))
    return call_control(control, ask, most=8, may_bypass=False)


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("zero", "own.py:zero: in_flight is 0, must be at least 1 and at most 8, the window"),
        (
            "not_a_number",
            "own.py:not_a_number: the answer is nan, must be Limits or a whole number of packets",
        ),
        ("fraction", "the answer is 1.5"),
        ("nothing", "the answer is None"),
        ("beyond", "in_flight is 1000000, must be at least 1 and at most 8"),
        ("no_claims", "claims is 0, must be at least 1 and at most 8"),
        ("negative", "in_flight is -3"),
        ("bypass", "claims is 1, must be 8, the window, without a fallback server"),
        ("Raises", "own.py:Raises raised ZeroDivisionError"),
    ],
)
def test_what_can_be_no_window_is_refused_by_name(
    own: Callable[[str], str], name: str, complaint: str
) -> None:
    control = windows.find(own(name)).make()
    with pytest.raises(BadLimits, match=complaint):
        _ = answer(control), answer(control, Round(4, 0, 0, 0.0))


def test_a_whole_number_stands_for_packets_in_flight_that_may_all_claim_slots(
    own: Callable[[str], str],
) -> None:
    control = windows.find(own("late")).make()
    assert answer(control) == Limits(1, 8)
    assert answer(control, Round(1, 0, 0, 0.0)) == Limits(2, 8)


@given(
    st.integers(1, 500),
    st.lists(st.tuples(st.integers(1, 500), st.floats(0, 1), st.floats(0, 1)), max_size=60),
)
def test_the_example_in_c_decides_as_that_in_python(
    in_c: Callable[[str], str], window: int, rounds: list[tuple[int, float, float]]
) -> None:
    controls = [windows.find(name).make() for name in (DCTCP, in_c("dctcp"))]
    first, second = (control.start(window) for control in controls)
    assert first == second
    for results, marked, waiting in rounds:
        outcome = Round(results, int(marked * results), 0, waiting)
        first, second = (control.on_round(outcome) for control in controls)
        assert first == second
        assert 1 <= first.in_flight <= window


# ---------------------------------------------------------------------- jobs


def total(comm: ina.Communicator) -> dict[str, float]:
    for _ in range(3):
        assert (comm.allreduce(np.ones(8000, np.int32)) == comm.size).all()
    return comm.statistics()


def test_the_core_asks_a_rule_in_c_by_itself(
    in_c: Callable[[str], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rounds and claims are as they should be, though nobody has asked Python."""
    monkeypatch.delattr(windows._InC, "on_round")
    outcomes = run_ranks(2, total, slots=0, window=200, fallback=True, congestion=in_c("steps"))
    for statistics in outcomes:
        assert statistics["packets_results"] == 750
        assert 1 <= statistics["window_packets"] <= 7
        assert statistics["packets_bypassed"] > 600  # of each window of 25, 22
    assert outcomes[0]["window_packets"] == outcomes[1]["window_packets"]


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("zero", "in_flight is 0, must be at least 1 and at most 25"),
        ("status", "its C function returned 17, must be 0"),
    ],
)
def test_a_rule_in_c_that_answers_nonsense_ends_the_job(
    in_c: Callable[[str], str], name: str, complaint: str
) -> None:
    errors = run_ranks(2, total, slots=0, window=200, fallback=True, congestion=in_c(name))
    for error in errors:
        assert isinstance(error, ina.JobFault)
        assert complaint in str(error)


def test_a_rule_that_answers_nonsense_at_the_start_is_a_wrong_configuration(
    own: Callable[[str], str],
) -> None:
    with (
        SocketSwitch(1, slots=0, window=200, fallback=True, congestion=own("zero")) as switch,
        pytest.raises(
            ina.ConfigError, match=r"own\.py:zero: in_flight is 0, must be at least 1 and at most 25"
        ),
    ):
        ina.Communicator(switch.configs[0])


def test_ranks_whose_files_differ_are_told(tmp_path: Path, write_file: Callable[[str, str], Path]) -> None:
    """On machines of their own, ranks may find another file by the same name."""
    texts = {0: OWN, 1: OWN + "# another version"}

    def make(config: ina.JobConfig) -> ina.Communicator:
        file = write_file(f"{config.rank}.py", texts[config.rank])
        return ina.Communicator(
            ina.JobConfig.from_json(config.to_json().replace("FILE", str(file).replace(".py", "")))
        )

    errors = run_ranks(2, total, make, slots=1024, congestion="FILE.py:Raises")
    for rank, error in enumerate(errors):
        assert isinstance(error, ina.RanksDisagree)
        assert f"congestion control here: {tmp_path}/{rank}.py:Raises, digest " in str(error)


@pytest.mark.parametrize("language", ["python", "c"])
def test_all_ranks_stay_together(
    own: Callable[[str], str], in_c: Callable[[str], str], language: str
) -> None:
    """Whatever the order in which their packets come, and however late they begin."""
    told: dict[int, list[tuple[Round, Limits]]] = {}

    class Noted:
        wants_rounds = True

        def __init__(self) -> None:
            self._inner = windows.find(own("Halve") if language == "python" else in_c("halve")).make()
            self._told = told.setdefault(len(told), [])

        def start(self, window: int) -> Limits:
            return self._inner.start(window)

        def on_round(self, outcome: Round) -> Limits:
            self._told.append((outcome, self._inner.on_round(outcome)))
            return self._told[-1][1]

    network = shared_network(
        NativeKernel,
        4,
        window=256,
        slots=8,
        make_congestion=Noted,
        impairments=Impairments(reorder=0.2, reorder_s=30e-6),
    )
    for _ in range(3):
        network.run([np.ones(32 * 300, np.int32)] * 4, starts_us=[0, 20, 400, 0])
    first, *others = told.values()
    assert all(other == first for other in others)
    assert sum(outcome.collided for outcome, _ in first) > 0
    assert len({limits.in_flight for _, limits in first}) > 5
    assert any(limits.claims < 16 for _, limits in first)
