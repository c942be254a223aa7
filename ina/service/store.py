"""The service's store: an append-only log of events, and the holds, in one SQLite file.

Events are the core's inputs, in order; replayed into a fresh core they give the same decisions. *Holds* are
the runs that the daemon has begun to carry out: a row is added before the first effect, and removed after the
last, so that none is forgotten. One process at a time uses a state (`locked`).

A *witness* beside the file has the state's identity, the number of its openings, and its last known event. A
file that is empty, or lacks some of these events, is no new state: it is refused
(`ina.service.recovery`).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self

from controller.switches.leases import is_running
from ina.errors import StoreError
from ina.launch import files

VERSION = 4
"""Version of the schema. A file of an older one is migrated (`_MIGRATIONS`), one of a newer one refused."""

FILE = "state.sqlite"
WITNESS = "witness.json"
WAYS_OUT = (
    "'ina controller restore BACKUP --state {folder}' goes on from a backup, 'ina controller forget --state"
    " {folder}' ends all its runs and begins anew"
)
_END_S = 5.0
"""Time for the end of a process whose lock is free; it may have been on another machine."""
_CHECKPOINT_PAGES = 256
"""Pages in the log after which SQLite moves them into the file, which should not be empty without its log."""
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
_MIGRATIONS: Mapping[int, str] = {1: _SNAPSHOTS, 2: _ARCHIVE, 3: ""}
"""Statements from each earlier version to the next. Holds of version 4 have another form (`held_run`)."""


class Row(NamedTuple):
    """A stored event: its number, and the event as plain data."""

    seq: int
    body: Mapping[str, Any]


def read_witness(folder: Path, *, doubted: bool = False) -> dict[str, Any] | None:
    """Read the witness of a state; None if it is not there, or is damaged and may be `doubted`.

    Raises StoreError for a damaged witness, and OSError.
    """
    with contextlib.suppress(ValueError):
        match files.read(folder / WITNESS):
            case {"state": str(), "generation": int(), "seq": int()} | None as found:
                return found
    if doubted:
        return None
    raise StoreError(
        f"{folder / WITNESS}, which says how far the state has come, is damaged: 'ina controller adopt"
        f" --state {folder}' goes on from the events there, {WAYS_OUT.format(folder=folder)}"
    )


class Store:
    """An open state; to be used by one thread at a time.

    Attributes:
        folder: Its folder.
        identity: Its name: no other state has the same.
        generation: The number of its openings.
    """

    kept: Literal[True] = True
    """Whether it survives the process."""

    def __init__(self, folder: Path, *, older: bool = False) -> None:
        """Open the state in a folder, which is made if it is not there.

        Args:
            folder: The folder.
            older: Continue from a state that lacks some of its events.

        Raises StoreError if it is damaged, lost, older than it has been, of a newer version, or cannot be
        written.
        """
        self.folder = folder
        self._path = folder / FILE
        self._witnessed = threading.Lock()
        self._seen = self._last = 0
        self.trouble = ""
        """Why the last write failed; "": it did not."""
        self._log_is_listed = False
        """Whether the folder's list of files was synced since SQLite made its log."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            witness = read_witness(folder, doubted=older) or {}
            if not self._path.exists() or not self._path.stat().st_size:
                self._refuse_to_begin(witness)
            self._database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{self._path}: {error}") from error
        try:
            self._prepare(witness)
            self._identify(witness, older=older)
        except BaseException:
            self._database.close()
            raise

    def _refuse_to_begin(self, witness: Mapping[str, Any]) -> None:
        """Raise StoreError if an empty file is not the beginning of a state."""
        runs = self.folder / "runs"
        left = sorted(each.name for each in runs.iterdir()) if runs.is_dir() else []
        if not witness.get("seq") and not left:
            return
        had = (
            f"the state here had {witness['seq']} events" if witness.get("seq") else "there was a state here"
        )
        of = f", and runs {', '.join(left)} are there" if left else ""
        raise StoreError(
            f"{self._path} is empty, or its log (-wal) is lost: {had}{of}."
            f" {WAYS_OUT.format(folder=self.folder)}"
        )

    def _identify(self, witness: Mapping[str, Any], *, older: bool) -> None:
        """Check that this is the complete state of this folder; count its opening."""
        self.identity = self.fact("service", witness.get("state") or secrets.token_hex(4)) or ""
        opened, last = int(self.fact("generation") or 0), self.last
        self._last = last
        before, seq = witness.get("generation", 0), witness.get("seq", 0)
        if witness and witness["state"] != self.identity:
            raise StoreError(
                f"{self._path} has the state {self.identity}, and {self.folder} the state {witness['state']}:"
                " want another --state"
            )
        if seq and (last < seq or opened < before) and not older:
            raise StoreError(
                f"{self._path} ends with event {last} (opened {opened} times), and has had event {seq}"
                f" (opened {before} times): its log (-wal) is lost or damaged, or it is a copy from before."
                f" 'ina controller adopt --state {self.folder}' goes on from it,"
                f" {WAYS_OUT.format(folder=self.folder)}"
            )
        self.generation = max(opened, before) + 1
        self.set_fact("generation", str(self.generation))
        with self._errors():
            self._database.execute("PRAGMA wal_checkpoint(PASSIVE)")
        self._witness(last)

    def _witness(self, seq: int) -> None:
        """Write into the witness that event `seq` is in the file; the next event repeats a failed write."""
        with self._witnessed, contextlib.suppress(OSError):
            if seq >= self._seen:
                said = {"state": self.identity, "generation": self.generation, "seq": seq}
                files.write(self.folder / WITNESS, said)
                self._seen = seq + 1

    def _prepare(self, witness: Mapping[str, Any]) -> None:
        with self._errors():
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = FULL")
            self._database.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
            (verdict,) = self._database.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise StoreError(self._damaged(verdict))
        with self._errors():
            (version,) = self._database.execute("PRAGMA user_version").fetchone()
            if version == 0:
                self._refuse_to_begin(witness)
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
        """Close the state."""
        self._database.close()

    # ------------------------------------------------------------------ facts

    def fact(self, name: str, value: str | None = None) -> str | None:
        """Return a fact about this state; if there is none yet and `value` is given, keep that.

        Raises StoreError.
        """
        with self._errors():
            found = self._database.execute("SELECT value FROM meta WHERE name = ?", (name,)).fetchone()
            if found is None and value is not None:
                self._database.execute("INSERT INTO meta VALUES (?, ?)", (name, value))
                return value
        return found[0] if found else None

    def set_fact(self, name: str, value: str) -> None:
        """Change a fact about this state. Raises StoreError."""
        with self._errors():
            self._database.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    # ------------------------------------------------------------------ events

    def append(self, events: Sequence[tuple[float, Mapping[str, Any]]], *, synced: bool = True) -> list[int]:
        """Store events, all or none of them; return their numbers. Raises StoreError.

        They survive this process in any case. Events that are not `synced` survive a loss of power only from
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
        self._last = max(self._last, *numbers, 0)
        return numbers

    def sync(self) -> None:
        """Make all writes survive a loss of power, too. Raises StoreError."""
        seq = self._last
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
            self._witness(seq)
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

    @property
    def last_s(self) -> float:
        """The latest time of an event; 0: there is none. Raises StoreError."""
        with self._errors():
            (found,) = self._database.execute("SELECT coalesce(max(at_s), 0) FROM events").fetchone()
        return float(found)

    # ------------------------------------------------------------------ snapshots

    def snapshot(self, program: str, body: bytes) -> None:
        """Keep a program's knowledge after the last event; drop earlier snapshots. Raises StoreError."""
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

    # ------------------------------------------------------------------ forgotten jobs

    def archive(
        self, at_s: float, event: Mapping[str, Any], jobs: Sequence[tuple[int, str, Mapping[str, Any]]]
    ) -> int:
        """Store that jobs are forgotten, and their records. Raises StoreError.

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
        self._last = max(self._last, done.lastrowid)
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
        """Replace the holds of runs, all or none. Raises StoreError."""
        rows = [(run, json.dumps(body)) for run, body in bodies.items()]
        with self._transaction():
            self._database.executemany("INSERT OR REPLACE INTO holds VALUES (?, ?)", rows)
        self._witness(self._last)

    def let_go(self, run: int) -> None:
        """Remove the hold of a run. Raises StoreError."""
        with self._errors():
            self._database.execute("DELETE FROM holds WHERE run = ?", (run,))
        self._witness(self._last)

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
        ways = WAYS_OUT.format(folder=self.folder)
        return f"{self._path} is damaged ({why}); it is left as it is: {ways}"


def copy(source: Path, to: Path) -> None:
    """Copy a state's file as of one moment, even during writes. Raises StoreError."""
    log = source.with_name(f"{source.name}-wal")
    how = "mode=ro" if log.exists() else "mode=ro&immutable=1"  # which makes no files beside it
    try:
        with (
            contextlib.closing(sqlite3.connect(f"{source.absolute().as_uri()}?{how}", uri=True)) as here,
            contextlib.closing(sqlite3.connect(to)) as there,
        ):
            here.backup(there)
            there.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        raise StoreError(f"{source} cannot be copied to {to}: {error}") from error


@contextlib.contextmanager
def locked(folder: Path, *, on_wait: Any = lambda holder: None, poll_s: float = 0.2) -> Iterator[None]:
    """Lock a state for this process; wait for another one to end.

    `on_wait` is called once, with the other process's description, before a wait. A lock is free as soon as
    its holder is gone, however it ended. Raises StoreError.
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
        last, until = handle.read().strip().rpartition(" ")[2], time.monotonic() + _END_S
        while told and last.isdecimal() and is_running(int(last)) and time.monotonic() < until:
            time.sleep(poll_s / 10)  # its lock is free a moment before its end
        handle.seek(0)
        handle.truncate()
        handle.write(f"process {os.getpid()}\n")
        handle.flush()
        yield
