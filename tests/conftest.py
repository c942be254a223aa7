"""Options of the test run, and what holds for all tests: none depends on speed, or on who started the run."""

import gc
import os
import signal
import sys
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests import effort, started

HERE = Path(__file__).parent
FOLDERS = sorted(
    (path.name for path in HERE.iterdir() if any(path.rglob("test_*.py"))),
    key=lambda name: (name != "system", name),  # whole processes on real sockets take longest
)
"""The folders of tests, in the order in which they run."""
SLOW = {
    *("benchmarks/pages/test_real_runs.py", "benchmarks/test_published_tests.py", "project/test_wheel.py"),
    *("softswitch/differential/test_aggregation.py", "softswitch/test_engine_sanitized.py"),
    *("system/test_cluster_managers.py", "system/test_clusters.py", "system/test_control.py"),
    *("system/test_doctor.py", "system/test_every_launcher.py", "system/test_external_jobs.py"),
    *("system/test_leases.py", "system/test_machines.py", "system/test_pages.py", "system/test_restarts.py"),
    *("system/test_sanitized.py", "system/test_service_machines.py", "system/test_service_trial.py"),
    *("system/test_tofino.py", "system/test_verbs.py"),
}
"""Files all of whose tests count as slow: most of these take some seconds, and many wait for time-outs."""

# A thousand processes are started: only the first is to compile our modules.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
os.environ.pop("PYTHONUNBUFFERED", None)  # it hides output that is not flushed
sys.dont_write_bytecode = False
if str(started.FOLDER) not in os.environ.get("PYTHONPATH", "").split(os.pathsep):
    os.environ["PYTHONPATH"] = os.pathsep.join(
        filter(None, (str(started.FOLDER), os.environ.get("PYTHONPATH")))
    )
gc.callbacks[:] = [each for each in gc.callbacks if each.__module__ != "sitecustomize"]  # here tests decide
# NumPy's threads wait busily as they begin: that takes longer than all else of its import.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden",
        action="store_true",
        help="write what the tests see into their golden files, instead of comparing",
    )
    parser.addoption(
        "--thorough",
        action="store_true",
        help="try all random cases of properties and all of many of a kind, instead of a share",
    )


def pytest_configure(config: pytest.Config) -> None:
    effort.THOROUGH = bool(config.getoption("--thorough"))
    settings.register_profile(
        "any-speed",
        deadline=None,
        max_examples=effort.cases(100),  # without a profile, hypothesis tries 100
        suppress_health_check=[HealthCheck.too_slow],
    )
    settings.load_profile("any-speed")
    if hasattr(config, "workerinput") and [Path(each).resolve() for each in config.args] == [HERE]:
        config.args = _from_another_folder(config.workerinput)


def _from_another_folder(worker: dict[str, Any]) -> list[str]:
    """Return all folders, the first of them another one for each test process.

    Each reads all tests. What one has prepared for Python, the others find when they come to it.
    """
    first = int(worker["workerid"].removeprefix("gw")) * len(FOLDERS) // worker["workercount"]
    return [str(HERE / name) for name in (*FOLDERS[first:], *FOLDERS[:first])]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: FOLDERS.index(item.path.relative_to(HERE).parts[0]))
    for item in items:
        if item.path.relative_to(HERE).as_posix() in SLOW:
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and tests stay until the end: what collects garbage need not look at them again and again."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture
def cache_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of what is compiled, which is empty and of this test only."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "ina"


@pytest.fixture
def write_file(tmp_path: Path) -> Callable[[str, str], Path]:
    """Return what writes a text into a file of this name in the test's folder, and returns its path."""

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


@pytest.fixture
def update_golden(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--update-golden"))


@pytest.fixture(autouse=True, scope="session")
def children_heed_signals() -> Iterator[None]:
    """Let what tests start heed the signals that this run ignores, as below nohup or behind an ``&``.

    A process inherits that a signal is ignored, but no handler: with one that does nothing, this run goes on
    ignoring it and its children do not.
    """
    ignored = [
        number
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)
        if signal.getsignal(number) is signal.SIG_IGN
    ]
    for number in ignored:
        signal.signal(number, lambda *_: None)
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)
