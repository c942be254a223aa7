"""The service's state on disk: kept, lost, damaged, older than what runs, backed up."""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from controller.vocabulary import Job
from ina.errors import StoreError
from ina.run import recovery
from ina.run.store import VERSION, Store, locked
from ina.run.tokens import Role, Tokens
from tests.ina.run.served import LEFT, RIGHT, Served
from tests.system.command import good


def test_events_and_holds_are_there_again(tmp_path: Path) -> None:
    with Store(tmp_path / "state") as store:
        store.append([(1.0, {"kind": "a"}), (2.0, {"kind": "b"})])
        store.hold({7: {"stage": "running"}})
        store.hold({7: {"stage": "stopping"}, 8: {}})
        store.remove_hold(8)
        assert store.fact("began", "5") == "5"
    with Store(tmp_path / "state") as store:
        assert [body["kind"] for body in store.events()] == ["a", "b"]
        assert [body["kind"] for body in store.events(after=1)] == ["b"]
        assert store.holds() == {7: {"stage": "stopping"}}
        assert store.fact("began", "9") == "5"
        assert store.fact("unknown") is None


def test_events_are_written_all_or_none(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        with pytest.raises(TypeError):
            store.append([(1.0, {"fine": 1}), (2.0, {"not JSON": object()})])
        assert list(store.events()) == []
        store.append([(1.0, {})])
        assert store.last == 1


def test_events_that_are_not_synced_are_there_again_and_a_state_without_writes_can_be_synced(
    tmp_path: Path,
) -> None:
    with Store(tmp_path) as store:
        store.append([(1.0, {"kind": "a"})], synced=False)
        store.sync()
        store.append([(2.0, {"kind": "b"})])
    with Store(tmp_path) as store:
        store.sync()  # its log is made by the first write
        assert [body["kind"] for body in store.events()] == ["a", "b"]


def test_only_its_user_reads_a_state(tmp_path: Path) -> None:
    Store(tmp_path / "state").close()
    assert (tmp_path / "state").stat().st_mode & 0o077 == 0


def test_a_damaged_state_is_refused_and_kept(tmp_path: Path) -> None:
    damaged = b"garbage" * 1000
    (tmp_path / "state.sqlite").write_bytes(damaged)
    ways = rf"'ina controller restore BACKUP --state {tmp_path}'.*'ina controller forget --state {tmp_path}'"
    with pytest.raises(StoreError, match=rf"damaged .*was not changed: {ways}"):
        Store(tmp_path)
    assert (tmp_path / "state.sqlite").read_bytes() == damaged
    recovery.forget(tmp_path)
    with Store(tmp_path) as begun:
        assert begun.last == 0


def test_a_page_that_was_overwritten_is_noticed_at_the_start(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.append([(float(number), {"text": "x" * 500}) for number in range(200)])
    path = tmp_path / "state.sqlite"
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 4] = os.urandom(4096)
    path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        Store(tmp_path)


@pytest.mark.parametrize("text", ["'{'", "CAST(x'80' AS TEXT)"])
def test_a_text_that_was_overwritten_is_named_with_the_ways_out(tmp_path: Path, text: str) -> None:
    """It was an internal error, with a traceback."""
    with Store(tmp_path) as store:
        store.append([(1.0, {})])
        store._execute(f"UPDATE events SET body = {text}")
        with pytest.raises(StoreError, match=r"damaged .*'ina controller restore"):
            list(store.events())


def test_a_state_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    Store(tmp_path).close()
    with contextlib.closing(sqlite3.connect(tmp_path / "state.sqlite")) as database:
        database.execute(f"PRAGMA user_version = {VERSION + 1}")
    with pytest.raises(
        StoreError, match=f"has version {VERSION + 1}; the newest that this ina can read is {VERSION}"
    ):
        Store(tmp_path)


def test_a_full_disk_is_an_error_and_nothing_is_half_written(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.append([(1.0, {})])
        store._database.execute("PRAGMA max_page_count = 8")
        with pytest.raises(StoreError, match="full"):
            store.append([(2.0, {"text": "x" * 3000}) for _ in range(20)])
        assert [*store.events()] == [{}]


def test_a_file_that_is_moved_away_under_its_controller_takes_events_only_when_it_is_back(
    tmp_path: Path,
) -> None:
    """They were accepted, and lost with the file."""
    with Store(tmp_path / "state") as store:
        (tmp_path / "state").rename(tmp_path / "moved")
        with pytest.raises(StoreError, match="was removed or replaced"):
            store.append([(1.0, {})])
        (tmp_path / "moved").rename(tmp_path / "state")
        store.append([(1.0, {})])


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file/state"):
        Store(tmp_path / "file" / "state")


def test_a_second_process_waits_until_the_first_is_gone_however_it_ended(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from ina.run.store import locked\n"
        "with locked(pathlib.Path(sys.argv[1])): print('mine', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout.readline() == "mine\n"
        told: list[str] = []
        waiting, have = threading.Event(), threading.Event()

        def wait() -> None:
            with locked(tmp_path, on_wait=lambda who: (told.append(who), waiting.set()), poll_s=0.01):
                have.set()

        thread = threading.Thread(target=wait)
        thread.start()
        assert waiting.wait(60)
        assert told == [f"process {first.pid}"]
        assert not have.is_set()
        first.kill()
        assert have.wait(60)
        thread.join()


def test_a_state_of_the_first_version_is_migrated(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "state.sqlite")) as database:
        database.executescript(
            """
            CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
            CREATE TABLE events
                (seq INTEGER PRIMARY KEY AUTOINCREMENT, at_s REAL NOT NULL, body TEXT NOT NULL);
            CREATE TABLE holds (run INTEGER PRIMARY KEY, body TEXT NOT NULL);
            INSERT INTO events (at_s, body) VALUES (1.0, '{"kind": "old"}');
            PRAGMA user_version = 1;
            """
        )
    with Store(tmp_path) as store:
        assert [*store.events()] == [{"kind": "old"}]
        assert store.last_snapshot() is None
        store.snapshot({"all": "of it"})
        assert store.last_snapshot() == (1, {"all": "of it"})
    with contextlib.closing(sqlite3.connect(tmp_path / "state.sqlite")) as database:
        assert database.execute("PRAGMA user_version").fetchone() == (VERSION,)


EVENTS = [(float(number), {"text": "x" * 500}) for number in range(50)]


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The folder of a state whose controller was killed: its events are in the log only."""
    folder = tmp_path / "state"
    with Store(folder) as store:
        store.fact("policies", "{}")
        for event in EVENTS:
            store.append([event])
        store.hold({3: {"stage": "running"}})
        shutil.copytree(folder, tmp_path / "killed")
    return tmp_path / "killed"


def empty(folder: Path) -> None:
    (folder / "state.sqlite").write_bytes(b"")
    (folder / "state.sqlite-wal").unlink()


def lose_log(folder: Path) -> None:
    (folder / "state.sqlite-wal").unlink()
    (folder / "state.sqlite-shm").unlink(missing_ok=True)


def damage_log(folder: Path) -> None:
    log = folder / "state.sqlite-wal"
    content = bytearray(log.read_bytes())
    content[len(content) // 2] ^= 0xFF
    log.write_bytes(content)
    (folder / "state.sqlite-shm").unlink(missing_ok=True)


@pytest.mark.parametrize("lose", [empty, lose_log, damage_log])
def test_a_state_that_is_lost_or_lacks_events_is_refused_and_left_as_it_is(
    killed: Path, lose: Callable[[Path], None]
) -> None:
    """It was taken for a new one: no jobs, and all clean, while workers ran."""
    lose(killed)
    for _ in range(2):
        with pytest.raises(StoreError, match=rf"had.* event.*ina controller restore BACKUP --state {killed}"):
            Store(killed)


def test_a_killed_state_with_its_log_goes_on(killed: Path) -> None:
    with Store(killed) as store:
        assert (store.last, store.holds(), store.generation) == (50, {3: {"stage": "running"}}, 2)


def test_an_empty_file_beside_runs_is_no_new_state_even_without_a_witness(tmp_path: Path) -> None:
    (tmp_path / "runs" / "4").mkdir(parents=True)
    with pytest.raises(StoreError, match="runs 4 are still there"):
        Store(tmp_path)


def test_a_state_in_the_folder_of_another_one_is_refused(killed: Path, tmp_path: Path) -> None:
    with Store(tmp_path / "other") as store:
        store.append(EVENTS)
    (killed / "state.sqlite-wal").unlink()
    shutil.copy(tmp_path / "other" / "state.sqlite", killed)
    with pytest.raises(StoreError, match=r"has the state \w+, and .* the state \w+"):
        Store(killed)


def test_an_older_state_goes_on_when_it_is_adopted(killed: Path) -> None:
    damage_log(killed)
    last = recovery.adopt(killed)
    assert 0 < last < 50
    with Store(killed) as store:
        assert (store.last, store.fact("restored")) == (last, "1")


@pytest.mark.parametrize("witness", ["", "{}", "nonsense", '{"state": 7}'])
def test_a_damaged_witness_is_refused_and_the_state_goes_on_when_it_is_adopted(
    killed: Path, witness: str
) -> None:
    (killed / "witness.json").write_text(witness)
    for refused in (Store, lambda folder: recovery.back_up(folder, folder / "backup")):
        with pytest.raises(
            StoreError, match=rf"witness\.json.* is damaged: 'ina controller adopt --state {killed}'"
        ):
            refused(killed)
    assert recovery.adopt(killed) == 50
    with Store(killed) as store:
        assert (store.last, store.fact("restored")) == (50, "1")


@pytest.mark.parametrize("what", [recovery.adopt, recovery.forget])
def test_a_state_that_is_not_there_is_neither_adopted_nor_forgotten(
    tmp_path: Path, what: Callable[[Path], object]
) -> None:
    with pytest.raises(StoreError, match="does not exist: want the --state of a controller"):
        what(tmp_path / "nosuch")
    assert not (tmp_path / "nosuch").exists()


def test_a_backup_makes_no_directory(killed: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nosuch is not a directory"):
        recovery.back_up(killed, tmp_path / "nosuch" / "backup")
    assert not (tmp_path / "nosuch").exists()


def test_a_backup_is_made_while_the_state_is_written_and_restored_with_its_tokens(tmp_path: Path) -> None:
    state, backup = tmp_path / "state", tmp_path / "backup"
    with Store(state) as store:
        Tokens(state).add("alice", Role.OPERATOR)
        store.fact("policies", "{}")
        store.append(EVENTS)
        recovery.back_up(state, backup)
        store.append(EVENTS)
        store.hold({3: {}})
    assert backup.stat().st_mode & 0o077 == 0
    (state / "tokens.json").unlink()
    assert recovery.restore(backup, tmp_path / "lost") == recovery.restore(backup, state) == 50
    assert [*backup.parent.glob(f"{backup.name}-*")] == [], "a backup may be where nothing can be written"
    assert [grant.name for grant in Tokens(state).grants()] == ["alice"]
    assert (state / "before-restore-1" / "state.sqlite").exists()
    with Store(state) as store:
        assert (store.last, store.holds(), store.fact("restored")) == (50, {}, "1")
    with pytest.raises(StoreError, match="exists"):
        recovery.back_up(state, backup)


def test_what_is_no_backup_of_this_state_is_not_restored(killed: Path, tmp_path: Path) -> None:
    with Store(tmp_path / "other") as store:
        store.fact("policies", "{}")
    recovery.back_up(tmp_path / "other", tmp_path / "backup")
    (tmp_path / "nothing").touch()
    for name, why in (
        ("backup", r"has the state \w+, and .* the state \w+"),
        ("nothing", "no backup of a controller"),
        ("absent", "does not exist"),
    ):
        with pytest.raises(StoreError, match=why):
            recovery.restore(tmp_path / name, killed)
    with Store(killed) as store:
        assert store.last == 50


def test_a_state_that_a_controller_uses_is_neither_restored_nor_forgotten(
    killed: Path, tmp_path: Path
) -> None:
    recovery.back_up(killed, tmp_path / "backup")
    with locked(killed):
        for change in (
            lambda: recovery.restore(tmp_path / "backup", killed),
            lambda: recovery.forget(killed),
        ):
            with pytest.raises(StoreError, match="uses the state"):
                change()


def test_a_state_that_is_forgotten_begins_anew_under_its_name_and_ends_what_ran(killed: Path) -> None:
    (run := killed / "runs" / "3").mkdir(parents=True)
    words = (
        "import sys, time; from pathlib import Path; from ina.run.launch import files\n"
        "with files.alive(Path(sys.argv[1])): print('alive', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", words, str(run)], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        with Store(killed) as store:
            identity = store.identity
        (killed / "state.sqlite").write_bytes(b"")
        assert "1 run ended" in good("controller", "forget", "--state", killed).stderr
        assert process.wait(10) != 0
    with Store(killed) as store:
        assert (store.identity, store.last, store.holds()) == (identity, 0, {})
    assert (killed / "forgotten-1" / "runs" / "3").is_dir()


def test_a_run_of_an_engine_whose_status_is_of_another_version_is_not_forgotten(killed: Path) -> None:
    (run := killed / "runs" / "3").mkdir(parents=True)
    (run / "run.json").write_text('{"engine": "slurm"}')
    (run / "status.json").write_text('{"over": true}')
    with pytest.raises(StoreError, match=r"run 3 in .*/runs is a run of slurm: end it in that engine"):
        recovery.forget(killed)


def test_a_process_of_a_copy_of_the_state_elsewhere_is_named(killed: Path, tmp_path: Path) -> None:
    (run := killed / "runs" / "3").mkdir(parents=True)
    words = [
        sys.executable,
        "-c",
        "print('alive', flush=True); input()",
        "ina.run.launch.run_process",
        str(run),
    ]
    with Store(killed) as store:
        identity = store.identity
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()  # before, the kernel may not know its command line yet
        with pytest.raises(StoreError, match=rf"process {process.pid} of the state {identity} runs in {run}"):
            recovery.check_processes(tmp_path / "copy", identity)
        recovery.check_processes(tmp_path / "copy", "another")
        recovery.check_processes(killed, identity)
        shutil.rmtree(run)
        assert process.poll() is None
        recovery.check_processes(killed, identity)
        assert process.wait(10) != 0, "its folder is gone"


def job(name: str, *servers: str) -> Job:
    return Job(name=name, workers=len(servers), servers=servers, command=("train",), iterations=20)


async def test_after_a_restore_what_runs_goes_on_and_nothing_is_done_twice(served: Served) -> None:
    """A job that was completed since ran again: it "was killed"."""
    world, backup = served.world, served.folder / "backup"
    world.iterations |= {"goes on": 800, "done since": 100, "later": 400, "new": 400}
    await served.daemon.submit([job("goes on", LEFT), job("done since", RIGHT), job("later", RIGHT)])
    await served.until(lambda: [r.state for r in served.daemon.reports.records()][:2] == ["running"] * 2)
    recovery.back_up(served.folder, backup)
    await served.until(lambda: served.daemon.reports.record("done since").over)
    await served.until(lambda: served.daemon.reports.record("later").state == "running")
    logs = served.folder / "logs" / "3"
    logs.mkdir(parents=True)
    (logs / "rank-0.log").touch()
    await served.daemon.submit([job("new", "h2")])
    await served.until(lambda: served.daemon.reports.record("new").state == "running")
    assert len(world.runs) == 3
    await served.again(meanwhile=lambda: recovery.restore(backup, served.folder))
    found = {each.name: (each.state, each.reason) for each in served.daemon.reports.records()}
    assert found["goes on"][0] == "running"
    for name, how in (("done since", "the job was running then"), ("later", "the job has run since")):
        assert found[name][0] == "failed"
        assert how in found[name][1], found
        assert "ina retry" in found[name][1], found
    await served.daemon.retry("later")
    await served.until(lambda: all(each.over for each in served.daemon.reports.records()))
    assert world.completed == {"goes on": 1, "done since": 1, "later": 1}
    assert served.daemon.reports.record("goes on").starts == 1
    await served.clean()
    await served.again()
    assert served.daemon.reports.record("done since").state == "failed"
