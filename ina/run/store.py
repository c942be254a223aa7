"""The service's store: an append-only log of events, held runs and facts, in one SQLite file.

Events are the core's inputs, in order; replayed into a new core they give the same decisions. *Holds* are
the held runs (`HeldRun`), which the daemon has begun to start. A hold is added before the first effect on its
run, and removed after the last one, so that no run is forgotten. *Facts* are named texts, such as the state's
identity. Only one process at a time uses a state (`locked`).

The *witness* is a file beside the store. It has the state's identity, the number of times that the state was
opened, and the number of its last event. If the store is empty, or ends before that event, it has lost
events, and is refused (`ina.run.recovery`).
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import logging
import os
import pickle
import secrets
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import controller
from controller.switches.leases import is_running
from controller.vocabulary import Topology
from controller.vocabulary.files import parse_topology, topology_document
from ina.errors import StoreError
from ina.run.launch import files
from ina.run.launch.files import plain, record_of
from ina.run.memory import P, ServiceState
from ina.run.records import ArchivedJob

VERSION = 5
"""Version of the schema. Files of older versions are migrated (`_MIGRATIONS`); newer files are refused."""

FILE = "state.sqlite"
WITNESS = "witness.json"
WAYS_OUT = (
    "'ina controller restore BACKUP --state {folder}' continues from a backup, 'ina controller forget --state"
    " {folder}' ends all runs and begins a new state"
)
_END_S = 5.0
"""Maximum time, in s, to wait for the end of a process that has released its lock on the state. The wait is
limited because the process may have run on another machine, where its end cannot be seen."""
_CHECKPOINT_PAGES = 256
"""When SQLite's write-ahead log has this number of pages, SQLite copies them to the main file. The number is
small, so that the main file has almost all events if the log is lost."""
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
_MIGRATIONS: Mapping[int, str] = {1: _SNAPSHOTS, 2: _ARCHIVE, 3: "", 4: ""}
"""By earlier version of the file, the SQL that migrates the file to the next version. From version 3 on,
only the form of holds changes, which `held_run` converts."""


def read_witness(folder: Path, *, doubted: bool = False) -> dict[str, Any] | None:
    """Return the witness of the state in `folder`; None if there is none.

    Raises OSError, and StoreError if the witness is damaged; with `doubted`, return None for a damaged one.
    """
    with contextlib.suppress(ValueError):
        match files.read(folder / WITNESS):
            case {"state": str(), "generation": int(), "seq": int()} | None as found:
                return found
    if doubted:
        return None
    raise StoreError(
        f"{folder / WITNESS}, with the number of the state's last event, is damaged: 'ina controller adopt"
        f" --state {folder}' continues from the events in the state, {WAYS_OUT.format(folder=folder)}"
    )


class Store(ServiceState, contextlib.AbstractContextManager["Store"]):
    """An open state on disk, for use by one thread at a time.

    Attributes:
        identity: The state's unique random name.
        generation: The number of times that the state was opened.
    """

    def __init__(self, folder: Path, *, older: bool = False) -> None:
        """Open the state in a folder; create the folder if it does not exist.

        Args:
            folder: The folder.
            older: Whether to accept a state that has lost its latest events.

        Raises StoreError if the state is damaged or lost, lacks events, has a newer version, or cannot be
        written.
        """
        self.folder = folder
        self._path = folder / FILE
        self._witnessed = threading.Lock()
        self._next_witness = 0
        self._log_is_listed = False
        """Whether the folder was synced after SQLite had created its write-ahead log. Before that, a power
        failure could lose the log's directory entry."""
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            witness = read_witness(folder, doubted=older) or {}
            if not self._path.exists() or not self._path.stat().st_size:
                self._refuse_to_begin(witness)
            self._database = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            self._file = self._path.stat().st_ino
        except (OSError, sqlite3.Error) as error:
            raise StoreError(f"{self._path}: {error}") from error
        try:
            self._prepare(witness)
            self._identify(witness, older=older)
        except BaseException:
            self._database.close()
            raise

    def _refuse_to_begin(self, witness: Mapping[str, Any]) -> None:
        """Raise StoreError if a state whose file is missing or empty has had events.

        The witness, or folders of runs, show that.
        """
        runs = self.folder / "runs"
        left = sorted(each.name for each in runs.iterdir()) if runs.is_dir() else []
        if not witness.get("seq") and not left:
            return
        history = (
            f"the state here had {witness['seq']} events" if witness.get("seq") else "there was a state here"
        )
        remaining = f", and runs {', '.join(left)} are still there" if left else ""
        raise StoreError(
            f"{self._path} is empty, or its log (-wal) is lost: {history}{remaining}."
            f" {WAYS_OUT.format(folder=self.folder)}"
        )

    def _identify(self, witness: Mapping[str, Any], *, older: bool) -> None:
        """Compare the state with the witness, and count that the state was opened.

        Raises StoreError if the file has another state, or lacks events and `older` is not set.
        """
        self.identity = self.fact("service", witness.get("state") or secrets.token_hex(4)) or ""
        opened = int(self.fact("generation") or 0)
        query = "SELECT coalesce(max(seq), 0), coalesce(max(at_s), 0.0) FROM events"
        self.last, self.last_s = last, _ = self._execute(query)
        before, seq = witness.get("generation", 0), witness.get("seq", 0)
        if witness and witness["state"] != self.identity:
            raise StoreError(
                f"{self._path} has the state {self.identity}, and {self.folder} the state {witness['state']}:"
                " want another --state"
            )
        if seq and (last < seq or opened < before) and not older:
            raise StoreError(
                f"{self._path} ends with event {last} (opened {opened} times), but it once had event {seq}"
                f" (opened {before} times): its log (-wal) is lost or damaged, or it is an older copy."
                f" 'ina controller adopt --state {self.folder}' continues from it,"
                f" {WAYS_OUT.format(folder=self.folder)}"
            )
        self.generation = max(opened, before) + 1
        self.set_fact("generation", str(self.generation))
        self._execute("PRAGMA wal_checkpoint(PASSIVE)")
        self._witness(last)

    def _witness(self, seq: int) -> None:
        """Write `seq`, the number of the last event, to the witness.

        Ignore a failed write: the next event writes the witness again.
        """
        with self._witnessed, contextlib.suppress(OSError):
            if seq >= self._next_witness:
                content = {"state": self.identity, "generation": self.generation, "seq": seq}
                files.write(self.folder / WITNESS, content)
                self._next_witness = seq + 1

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

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the state."""
        self._database.close()

    # ------------------------------------------------------------------ facts

    def first(self, policies: P, cluster: Topology) -> tuple[P, Topology]:
        """Return the policies and the cluster with which the state was created.

        If the state is new, store the arguments, and return them. Raises StoreError.
        """
        first = self.fact("policies", json.dumps(plain(policies))) or ""
        described = self.fact("cluster", json.dumps(topology_document(cluster))) or ""
        with self._errors():
            policies = record_of(type(policies), json.loads(first))
        return policies, parse_topology(described, source=f"{self._path}, cluster")

    def fact(self, name: str, value: str | None = None) -> str | None:
        """Return the fact `name`; None: there is none.

        If there is none, and `value` is given, store and return `value`. Raises StoreError.
        """
        found = self._execute("SELECT value FROM meta WHERE name = ?", name)
        if found is None and value is not None:
            self.set_fact(name, value)
            return value
        return found[0] if found else None

    def set_fact(self, name: str, value: str) -> None:
        """Set the fact `name` to `value`. Raises StoreError."""
        self._execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", name, value)

    # ------------------------------------------------------------------ events

    def append(
        self,
        events: Sequence[tuple[float, Mapping[str, Any]]],
        *,
        synced: bool = True,
        archived: Sequence[ArchivedJob] = (),
    ) -> None:
        """Store events, and the jobs that they archive, all of them or none.

        Stored events always survive the end of this process. If `synced` is False, they survive a power
        failure only after the next `sync` or the next synced write.

        Args:
            events: At least one event, each with its time.
            synced: Whether to wait until the events are on disk.
            archived: The jobs that the events archive.

        Raises StoreError.
        """
        with self._transaction(synced=synced):
            for at_s, body in events:
                done = self._database.execute(
                    "INSERT INTO events (at_s, body) VALUES (?, ?)", (at_s, json.dumps(body))
                )
            self._database.executemany(
                "INSERT OR REPLACE INTO archive VALUES (?, ?, ?)",
                [(number, name, json.dumps(record)) for number, name, record in archived],
            )
        assert done.lastrowid is not None
        self.last = done.lastrowid

    def sync(self) -> None:
        """Sync all writes to disk, so that they survive a power failure. Raises StoreError."""
        seq = self.last
        try:
            # Every write goes to this file first; when SQLite moves it to the main file, it syncs both.
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
        except OSError as error:
            raise StoreError(f"{self._path}: {error.strerror}") from error

    def events(self, after: int = 0) -> Iterator[Mapping[str, Any]]:
        """Yield all events with numbers above `after`. Raises StoreError."""
        with self._errors():
            query = "SELECT body FROM events WHERE seq > ? ORDER BY seq"
            for (body,) in self._database.execute(query, (after,)):
                yield json.loads(body)

    # ------------------------------------------------------------------ snapshots

    def snapshot(self, known: Mapping[str, Any]) -> None:
        """Store attributes of a ledger after the last event as a snapshot, and remove earlier snapshots.

        Do nothing if they cannot be pickled, such as an object of a policy that a user has written in a file.
        Raises StoreError.
        """
        try:
            body = pickle.dumps(dict(known), protocol=pickle.HIGHEST_PROTOCOL)
        except (pickle.PicklingError, AttributeError, TypeError) as error:
            _log.info("no snapshot: %s", error)
            return
        with self._transaction():
            self._database.execute("DELETE FROM snapshots")
            self._database.execute(
                "INSERT INTO snapshots SELECT coalesce(max(seq), 0), ?, ? FROM events", (program(), body)
            )

    def last_snapshot(self) -> tuple[int, Mapping[str, Any]] | None:
        """Return the snapshot that this version of the program wrote; None: there is none.

        Return the number of the last event in the snapshot, and the attributes. Raises StoreError.
        """
        found = self._execute("SELECT seq, body FROM snapshots WHERE program = ?", program())
        return None if found is None else (found[0], pickle.loads(found[1]))

    def archived(self, name: str, number: int | None = None) -> list[dict[str, Any]]:
        """Return the records of the archived jobs with this name or number, the latest job first.

        Raises StoreError.
        """
        with self._errors():
            found = self._database.execute(
                "SELECT body FROM archive WHERE name = ? OR job = ? ORDER BY job DESC", (name, number)
            )
            return [json.loads(body) for (body,) in found]

    # ------------------------------------------------------------------ holds

    def hold(self, runs: Mapping[int, object]) -> None:
        """Store held runs, by the run's number, in place of earlier ones. Raises StoreError.

        All are stored or none.
        """
        rows = [(run, json.dumps(plain(held))) for run, held in runs.items()]
        with self._transaction():
            self._database.executemany("INSERT OR REPLACE INTO holds VALUES (?, ?)", rows)
        self._witness(self.last)

    def remove_hold(self, run: int) -> None:
        """Remove the hold of a run. Raises StoreError."""
        self._execute("DELETE FROM holds WHERE run = ?", run)
        self._witness(self.last)

    def holds(self) -> dict[int, dict[str, Any]]:
        """Return all holds, by the number of the run. Raises StoreError."""
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
            with self._errors():
                if not self._path.exists() or self._path.stat().st_ino != self._file:
                    raise StoreError(
                        f"{self._path} was removed or replaced while this controller used it: move the file"
                        " back, or end this controller"
                    )
                if not synced:
                    self._database.execute("PRAGMA synchronous = NORMAL")
                try:
                    self._database.execute("BEGIN IMMEDIATE")
                    yield
                    self._database.execute("COMMIT")
                finally:
                    if self._database.in_transaction:
                        self._database.execute("ROLLBACK")
                    if not synced:
                        self._database.execute("PRAGMA synchronous = FULL")
        except StoreError as error:
            self.trouble = str(error)
            raise
        except BaseException:
            self.trouble = before
            raise

    def _execute(self, statement: str, *values: object) -> Any:
        """Execute a statement of SQL; return the first row of its result, None without one."""
        with self._errors():
            return self._database.execute(statement, values).fetchone()

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except (sqlite3.DatabaseError, ValueError) as error:  # a ValueError: of a text that is not JSON
            # an error without a name is of a text that is not UTF-8
            damaged = getattr(error, "sqlite_errorname", "") in ("", "SQLITE_CORRUPT", "SQLITE_NOTADB")
            raise StoreError(self._damaged(str(error)) if damaged else f"{self._path}: {error}") from error

    def _damaged(self, why: str) -> str:
        ways = WAYS_OUT.format(folder=self.folder)
        return f"{self._path} is damaged ({why}), and was not changed: {ways}"


def copy(source: Path, to: Path) -> None:
    """Copy a state's file in a consistent state, even while it is written to. Raises StoreError."""
    log = source.with_name(f"{source.name}-wal")
    how = "mode=ro" if log.exists() else "mode=ro&immutable=1"  # which makes no files beside it
    try:
        with (
            contextlib.closing(sqlite3.connect(f"{source.absolute().as_uri()}?{how}", uri=True)) as database,
            contextlib.closing(sqlite3.connect(to)) as target,
        ):
            database.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error as error:
        raise StoreError(f"{source} cannot be copied to {to}: {error}") from error


@contextlib.contextmanager
def locked(folder: Path, *, on_wait: Any = lambda holder: None, poll_s: float = 0.2) -> Iterator[None]:
    """Lock a state for this process while the context lasts; if another process has locked it, wait.

    Args:
        folder: The state's folder.
        on_wait: Called once before a wait, with a description of the other process.
        poll_s: Interval, in s, at which a wait tries again.

    The lock is also released when its process ends for any reason. Raises StoreError.
    """
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = (folder / "lock").open("a+")
    except OSError as error:
        raise StoreError(f"{folder}: {error.strerror}") from error
    with handle:
        waited = False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if not waited:
                    handle.seek(0)
                    on_wait(handle.read().strip())
                    waited = True
                time.sleep(poll_s)
        handle.seek(0)
        last, until = handle.read().strip().rpartition(" ")[2], time.monotonic() + _END_S
        while waited and last.isdecimal() and is_running(int(last)) and time.monotonic() < until:
            time.sleep(poll_s / 10)  # its lock is free a moment before its end
        handle.seek(0)
        handle.truncate()
        handle.write(f"process {os.getpid()}\n")
        handle.flush()
        yield


_log = logging.getLogger(__name__)


@cache
def program() -> str:
    """Return a hash that identifies this version of the program: of the code, and of Python's version."""
    found = hashlib.sha256(sys.version.encode())
    for folder in (Path(controller.__file__).parent, Path(__file__).parent):
        for path in sorted(folder.rglob("*.py")):
            found.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()
