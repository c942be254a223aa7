"""The service's memory: an append-only log of events, and what is held, in one SQLite file.

Events are what the core is told, in order; replayed into a fresh core they give the same decisions. *Holds*
are the runs that the daemon has begun to carry out: a row is there before the first effect, and goes after
the last, so that none is forgotten. One process at a time uses a state (`locked`).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from ina.service.errors import StoreError

VERSION = 3
"""Of the schema. A file of an older one is migrated (`_MIGRATIONS`), one of a newer one refused."""

_FILE = "state.sqlite"
_SCHEMA = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE events (seq INTEGER PRIMARY KEY AUTOINCREMENT, at_s REAL NOT NULL, body TEXT NOT NULL);
CREATE TABLE holds (run INTEGER PRIMARY KEY, body TEXT NOT NULL);
"""
_SNAPSHOTS = "CREATE TABLE snapshots (seq INTEGER PRIMARY KEY, program TEXT NOT NULL, body BLOB NOT NULL);"
_ARCHIVE = """
CREATE TABLE archive (job INTEGER PRIMARY KEY, name TEXT NOT NULL, body TEXT NOT NULL);
CREATE INDEX archive_name ON archive (name);
"""
_MIGRATIONS: Mapping[int, str] = {1: _SNAPSHOTS, 2: _ARCHIVE}
"""What leads from each earlier version to the next."""


class Row(NamedTuple):
    """An event as it was written down: its number, and the event as plain data."""

    seq: int
    body: Mapping[str, Any]


class Store:
    """An open state; to be used by one thread at a time."""

    def __init__(self, folder: Path) -> None:
        """Open the state in a folder, which is made if it is not there.

        Raises StoreError if it is damaged, of a newer version, or cannot be written.
        """
        self.folder = folder
        self._path = folder / _FILE
        self.trouble = ""
        """Why the last write failed; "": it did not."""
        self._log_is_listed = False
        """Whether the folder's list of files was synced since SQLite made its log."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{self._path}: {error}") from error
        try:
            self._prepare()
        except BaseException:
            self._database.close()
            raise

    def _prepare(self) -> None:
        with self._errors():
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
            (verdict,) = self._database.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise StoreError(self._damaged(verdict))
        with self._errors():
            (version,) = self._database.execute("PRAGMA user_version").fetchone()
            if version == 0:
                self._database.executescript(
                    f"BEGIN IMMEDIATE; {_SCHEMA} {_SNAPSHOTS} {_ARCHIVE}"
                    f" PRAGMA user_version = {VERSION}; COMMIT;"
                )
            while 0 < version < VERSION:
                self._database.executescript(
                    f"BEGIN IMMEDIATE; {_MIGRATIONS[version]} PRAGMA user_version = {version + 1}; COMMIT;"
                )
                version += 1
        if version > VERSION:
            raise StoreError(
                f"{self._path} has version {version}; the newest that this ina can read is {VERSION}: use a"
                " newer ina, or another --state"
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close it."""
        self._database.close()

    # ------------------------------------------------------------------ facts

    def fact(self, name: str, value: str | None = None) -> str | None:
        """Return a fact about this state; if there is none yet and `value` is given, that is kept.

        Raises StoreError.
        """
        with self._errors():
            found = self._database.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
            if found is None and value is not None:
                self._database.execute("INSERT INTO meta VALUES (?, ?)", (name, value))
                return value
        return found[0] if found else None

    # ------------------------------------------------------------------ events

    def append(self, events: Sequence[tuple[float, Mapping[str, Any]]], *, synced: bool = True) -> list[int]:
        """Write events down, all or none of them; return their numbers. Raises StoreError.

        They outlive this process in any case. Those that are not `synced` outlive a loss of power only from
        the next `sync`, or the next write of any other kind, on.
        """
        numbers = []
        with self._transaction(synced=synced):
            for at_s, body in events:
                done = self._database.execute(
                    "INSERT INTO events (at_s, body) VALUES (?, ?)", (at_s, json.dumps(body))
                )
                assert done.lastrowid is not None
                numbers.append(done.lastrowid)
        return numbers

    def sync(self) -> None:
        """Have all that was written outlive a loss of power, too. Raises StoreError."""
        try:
            # Every write goes to this file first; when SQLite moves it on, it syncs both files itself.
            with Path(f"{self._path}-wal").open("rb") as log:
                os.fsync(log.fileno())
            if not self._log_is_listed:  # the file itself is new
                folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
                try:
                    os.fsync(folder)
                finally:
                    os.close(folder)
                self._log_is_listed = True
        except FileNotFoundError:
            return  # nothing was written since the state was opened
        except OSError as error:
            raise StoreError(f"{self._path}: {error.strerror}") from error

    def events(self, after: int = 0) -> Iterator[Row]:
        """Yield all events later than number `after`. Raises StoreError."""
        with self._errors():
            for seq, body in self._database.execute(
                "SELECT seq, body FROM events WHERE seq > ? ORDER BY seq", (after,)
            ):
                yield Row(seq, json.loads(body))

    @property
    def last(self) -> int:
        """The number of the last event; 0: there is none. Raises StoreError."""
        with self._errors():
            (found,) = self._database.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()
        return int(found)

    # ------------------------------------------------------------------ snapshots

    def snapshot(self, program: str, body: bytes) -> None:
        """Keep what a program knows after the last event, instead of earlier snapshots. Raises StoreError."""
        with self._transaction():
            self._database.execute("DELETE FROM snapshots")
            self._database.execute(
                "INSERT INTO snapshots SELECT coalesce(max(seq), 0), ?, ? FROM events", (program, body)
            )

    def snapshot_of(self, program: str) -> tuple[int, bytes] | None:
        """Return the snapshot of a program, and the number of the last event in it; None: there is none.

        Raises StoreError.
        """
        with self._errors():
            found = self._database.execute(
                "SELECT seq, body FROM snapshots WHERE program = ? ORDER BY seq DESC", (program,)
            ).fetchone()
        return None if found is None else (int(found[0]), bytes(found[1]))

    # ------------------------------------------------------------------ jobs that are forgotten

    def archive(
        self, at_s: float, event: Mapping[str, Any], jobs: Sequence[tuple[int, str, Mapping[str, Any]]]
    ) -> int:
        """Write down that jobs are forgotten, and what they were. Raises StoreError.

        Args:
            at_s: Time of the event.
            event: The event.
            jobs: Number, name and record of each.

        Returns:
            The number of the event.
        """
        with self._transaction():
            done = self._database.execute(
                "INSERT INTO events (at_s, body) VALUES (?, ?)", (at_s, json.dumps(event))
            )
            self._database.executemany(
                "INSERT OR REPLACE INTO archive VALUES (?, ?, ?)",
                [(number, name, json.dumps(record)) for number, name, record in jobs],
            )
        assert done.lastrowid is not None
        return done.lastrowid

    def archived(self, name: str, number: int | None = None) -> list[dict[str, Any]]:
        """Return the records of forgotten jobs of a name or number, the latest first. Raises StoreError."""
        with self._errors():
            found = self._database.execute(
                "SELECT body FROM archive WHERE name = ? OR job = ? ORDER BY job DESC", (name, number)
            )
            return [json.loads(body) for (body,) in found]

    # ------------------------------------------------------------------ holds

    def hold(self, bodies: Mapping[int, Mapping[str, Any]]) -> None:
        """Write down what is held for runs, instead of what was, for all or none. Raises StoreError."""
        rows = [(run, json.dumps(body)) for run, body in bodies.items()]
        with self._transaction():
            self._database.executemany("INSERT OR REPLACE INTO holds VALUES (?, ?)", rows)

    def let_go(self, run: int) -> None:
        """Forget a run of which nothing is held any more. Raises StoreError."""
        with self._errors():
            self._database.execute("DELETE FROM holds WHERE run = ?", (run,))

    def holds(self) -> dict[int, dict[str, Any]]:
        """Return all holds, by run. Raises StoreError."""
        with self._errors():
            return {
                run: json.loads(body)
                for run, body in self._database.execute("SELECT run, body FROM holds ORDER BY run")
            }

    # ------------------------------------------------------------------

    @contextlib.contextmanager
    def _transaction(self, *, synced: bool = True) -> Iterator[None]:
        self.trouble, before = "", self.trouble
        try:
            with self._committed(synced):
                yield
        except StoreError as error:
            self.trouble = str(error)
            raise
        except BaseException:
            self.trouble = before
            raise

    @contextlib.contextmanager
    def _committed(self, synced: bool) -> Iterator[None]:
        with self._errors():
            if not synced:
                self._database.execute("PRAGMA synchronous = NORMAL")
            try:
                self._database.execute("BEGIN IMMEDIATE")
                yield
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:
                    self._database.execute("ROLLBACK")
                raise
            finally:
                if not synced:
                    self._database.execute("PRAGMA synchronous = FULL")

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.DatabaseError as error:
            damaged = getattr(error, "sqlite_errorname", "") in ("SQLITE_CORRUPT", "SQLITE_NOTADB")
            text = self._damaged(str(error)) if damaged else f"{self._path}: {error}"
            raise StoreError(text) from error

    def _damaged(self, why: str) -> str:
        return (
            f"{self._path} is damaged ({why}); it is left as it is. Restore a backup, or recover what can be"
            f" read: sqlite3 {self._path} .recover | sqlite3 NEW/{_FILE}, then start with --state NEW"
        )


@contextlib.contextmanager
def locked(folder: Path, *, on_wait: Any = lambda holder: None, poll_s: float = 0.2) -> Iterator[None]:
    """Be the only process that uses a state; wait for another one to end.

    `on_wait` is called once, with what the other one wrote of itself, if it has to be waited for. A lock is
    free as soon as its holder is gone, however it ended. Raises StoreError.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = (folder / "lock").open("a+")
    except OSError as error:
        raise StoreError(f"{folder}: {error.strerror}") from error
    with handle:
        told = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not told:
                    handle.seek(0)
                    on_wait(handle.read().strip())
                    told = True
                time.sleep(poll_s)
        handle.seek(0)
        handle.truncate()
        handle.write(f"process {os.getpid()}\n")
        handle.flush()
        yield
