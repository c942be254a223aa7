"""Jobs that are over are forgotten in the end: by number, by age, and over restarts of the daemon."""

from __future__ import annotations

import asyncio
import pickle
from pathlib import Path

import pytest

from controller.core import Ended, Submitted
from controller.core.compose import submission_of
from controller.core.core import Core
from controller.errors import BadSpec
from controller.vocabulary import Job
from ina.errors import Conflict, Unknown
from ina.run.clock import Clock
from ina.run.ledger import _KNOWN, Ledger
from ina.run.memory import ServiceState
from ina.run.policies import Policies
from ina.run.records import Retention
from ina.run.store import Store
from tests.ina.run.served import CLUSTER, LEFT, RIGHT, Served


def test_the_folder_of_a_state_in_memory_cannot_be_made() -> None:
    """A folder /nonexistent that root had made, and nobody else may read, ended every `ina run`."""
    with pytest.raises(NotADirectoryError):
        ServiceState.folder.mkdir(parents=True)


def names(served: Served) -> list[str]:
    return [each.name for each in served.daemon.reports.records()]


@pytest.mark.parametrize("served", [{"retention": Retention(jobs=2)}], indirect=True)
async def test_the_oldest_jobs_are_forgotten_beyond_a_number_and_their_records_are_found(
    served: Served,
) -> None:
    """They leave lists, decisions and logs; after a kill, too; their names may be used again."""
    for number in range(6):
        await served.submit(f"j{number}", 20, (LEFT,), "completed")
        (served.folder / "logs" / str(number + 1)).mkdir(parents=True)
    await served.until(lambda: len(names(served)) <= 3)
    kept = names(served)
    assert kept == [f"j{number}" for number in range(6 - len(kept), 6)]
    (archived,) = served.daemon.ledger.archived("j0")
    assert (archived["state"], archived["number"], archived["done"]) == ("completed", 1, 20)
    with pytest.raises(Unknown):
        served.daemon.reports.record("j0")
    assert all("j0" not in each.entry.jobs for each in served.daemon.reports.decisions())
    numbers = [each.number for each in served.daemon.reports.decisions()]
    assert numbers == sorted(numbers)
    assert served.daemon.ledger.log.counts["submitted"] == 6
    logs = {str(served.daemon.reports.record(name).number) for name in kept}
    await served.until(lambda: {each.name for each in (served.folder / "logs").iterdir()} == logs)
    before = [(each.number, each.entry.text) for each in served.daemon.reports.decisions()]
    await served.again()
    assert names(served) == kept
    assert [(each.number, each.entry.text) for each in served.daemon.reports.decisions()][
        : len(before)
    ] == before
    await served.submit("j0", 20, (LEFT,), "completed")
    assert served.daemon.reports.record("j0").number == 7
    await served.clean()


@pytest.mark.parametrize("served", [{"retention": Retention(age_s=100.0)}], indirect=True)
async def test_jobs_are_forgotten_when_they_are_old(served: Served) -> None:
    await served.submit("old", 20, (LEFT,), "completed")
    await asyncio.sleep(80.0)
    await served.submit("new", 20, (LEFT,), "completed")
    assert names(served) == ["old", "new"]
    await served.until(lambda: names(served) == ["new"])
    assert served.loop.time() > 100.0


@pytest.mark.parametrize("served", [{"retention": Retention(jobs=0)}], indirect=True)
async def test_a_job_that_runs_is_not_forgotten_nor_one_that_runs_again(served: Served) -> None:
    await served.submit("long", 100_000, (RIGHT,))
    for number in range(4):
        await served.submit(f"j{number}", 20, (LEFT,), "completed")
    await served.until(lambda: len(names(served)) == 2)
    assert names(served)[0] == "long"
    assert served.daemon.reports.explain("long")["decisions"]
    await served.daemon.cancel("long")
    await served.clean()


def test_memory_is_bounded_however_many_jobs_come_and_go(tmp_path: Path) -> None:
    """All that a ledger knows, in bytes, after 50 jobs and after 150; without a limit it grows with each."""

    def known(retention: Retention) -> tuple[int, int]:
        found = []
        with Store(tmp_path / str(retention.jobs)) as store:
            ledger = Ledger(store, CLUSTER, Policies(), Clock(0.0, 0.0), retention=retention)
            for number in range(150):
                job = Job(name=f"j{number}", workers=1, command=("train",), arrival_s=ledger.now_s)
                spec = submission_of(job, CLUSTER)
                ledger.record([Submitted(ledger.now_s, spec, job)], synced=False, key=job.name)
                ledger.decide()
                ledger.record([Ended(ledger.now_s, job.name)], synced=False)
                ledger.decide()
                if gone := ledger.expired():
                    ledger.forget({name: {} for name in gone})
                if number in (49, 149):
                    found.append(len(pickle.dumps({name: getattr(ledger, name) for name in _KNOWN})))
        return found[0], found[1]

    first, second = known(Retention(jobs=10))
    unlimited_first, unlimited_second = known(Retention())
    grows = unlimited_second - unlimited_first
    assert grows > 100 * 500, grows
    assert second - first < grows / 10, (first, second, grows)


async def test_an_unfinished_job_is_never_forgotten_by_the_core(served: Served) -> None:
    await served.daemon.submit([Job(name="a", workers=1, command=("train",))])
    core: Core = served.daemon.ledger.core
    with pytest.raises(BadSpec, match="'a' is not over"):
        core.forget(["a"])
    await served.daemon.cancel("a")


def test_a_retention_that_cannot_be_is_refused() -> None:
    with pytest.raises(BadSpec, match="-1 jobs"):
        Retention(jobs=-1)
    with pytest.raises(BadSpec, match="more than 0 s"):
        Retention(age_s=0.0)


@pytest.mark.parametrize("served", [{"retention": Retention(jobs=2)}], indirect=True)
async def test_a_name_is_free_when_its_job_is_over_and_each_is_found_again(served: Served) -> None:
    """Also after a kill, and when the older ones are forgotten."""
    served.world.iterations["again"] = 20
    job = Job(name="again", workers=1, servers=(LEFT,), command=("train",), iterations=20)
    for number in range(1, 5):
        (made,) = await served.daemon.submit([job])
        assert (made.number, made.called) == (number, "again")
        with pytest.raises(Conflict, match="'again' that is not over"):
            await served.daemon.submit([job])
        await served.until(lambda name=made.name: served.daemon.reports.record(name).over)  # type: ignore[misc]
        await served.again()
    assert served.daemon.ledger.named("again")[-1].number == 4
    await served.until(lambda: "again" not in names(served))
    for way in ("again", "1"):
        assert [(each["id"], each["number"]) for each in served.daemon.ledger.archived(way)] == [("again", 1)]
    await served.clean()
