"""The service's state on disk."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from ina.service.errors import StoreError
from ina.service.store import VERSION, Store, locked


def test_events_and_holds_are_there_again(tmp_path: Path) -> None:
    with Store(tmp_path / "state") as store:
        assert store.append([(1.0, {"kind": "a"}), (2.0, {"kind": "b"})]) == [1, 2]
        store.hold({7: {"stage": "running"}})
        store.hold({7: {"stage": "stopping"}, 8: {}})
        store.let_go(8)
        assert store.fact("began", "5") == "5"
    with Store(tmp_path / "state") as store:
        assert [(row.seq, row.body["kind"]) for row in store.events()] == [(1, "a"), (2, "b")]
        assert [row.seq for row in store.events(after=1)] == [2]
        assert store.holds() == {7: {"stage": "stopping"}}
        assert store.fact("began", "9") == "5"
        assert store.fact("unknown") is None


def test_events_are_written_all_or_none(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        with pytest.raises(TypeError):
            store.append([(1.0, {"fine": 1}), (2.0, {"not JSON": object()})])
        assert list(store.events()) == []
        assert store.append([(1.0, {})]) == [1]


def test_events_that_are_not_synced_are_there_again_and_a_state_without_writes_can_be_synced(
    tmp_path: Path,
) -> None:
    with Store(tmp_path) as store:
        assert store.append([(1.0, {"kind": "a"})], synced=False) == [1]
        store.sync()
        assert store.append([(2.0, {"kind": "b"})]) == [2]
    with Store(tmp_path) as store:
        store.sync()  # its log is made by the first write
        assert [row.body["kind"] for row in store.events()] == ["a", "b"]


def test_only_its_user_reads_a_state(tmp_path: Path) -> None:
    Store(tmp_path / "state").close()
    assert (tmp_path / "state").stat().st_mode & 0o077 == 0


def test_a_damaged_state_is_refused_and_kept(tmp_path: Path) -> None:
    damaged = b"garbage" * 1000
    (tmp_path / "state.sqlite").write_bytes(damaged)
    with pytest.raises(StoreError, match=r"damaged .*it is left as it is.*\.recover"):
        Store(tmp_path)
    assert (tmp_path / "state.sqlite").read_bytes() == damaged


def test_a_page_that_was_overwritten_is_noticed_at_the_start(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        store.append([(float(number), {"text": "x" * 500}) for number in range(200)])
    path = tmp_path / "state.sqlite"
    content = bytearray(path.read_bytes())
    content[4096 * 3 : 4096 * 4] = os.urandom(4096)
    path.write_bytes(content)
    with pytest.raises(StoreError, match="damaged"):
        Store(tmp_path)


def test_a_state_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    Store(tmp_path).close()
    with sqlite3.connect(tmp_path / "state.sqlite") as database:
        database.execute(f"PRAGMA user_version = {VERSION + 1}")
    database.close()
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
        assert [row.seq for row in store.events()] == [1]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file/state"):
        Store(tmp_path / "file" / "state")


def test_a_second_process_waits_until_the_first_is_gone_however_it_ended(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from ina.service.store import locked\n"
        "with locked(pathlib.Path(sys.argv[1])): print('mine', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as first:
        assert first.stdout is not None
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
    with sqlite3.connect(tmp_path / "state.sqlite") as database:
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
    database.close()
    with Store(tmp_path) as store:
        assert [row.body for row in store.events()] == [{"kind": "old"}]
        assert store.snapshot_of("mine") is None
        store.snapshot("mine", b"all of it")
        assert store.snapshot_of("mine") == (1, b"all of it")
    with sqlite3.connect(tmp_path / "state.sqlite") as database:
        assert database.execute("PRAGMA user_version").fetchone() == (VERSION,)
    database.close()
