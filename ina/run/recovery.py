"""Backups of a controller's state, and ways to continue after a loss of the state or of its latest events.

A controller only starts from a state with all of its events (`ina.run.store`). After a loss a user must
choose: `restore` a backup, `adopt` the state that is left without its latest events, or `forget` the state
and end all of its runs. A restored or adopted state lacks the latest events. So when the controller starts,
it ends the runs that this state does not contain, and jobs that may have been completed in the meantime fail
instead of running twice (`ServiceLoop`).
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import time
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from controller.switches.leases import is_running
from ina.errors import StoreError
from ina.run.launch import files
from ina.run.launch.executor import STOP_S, LocalRuns
from ina.run.ledger import RESTORED
from ina.run.store import FILE, WITNESS, Store, copy, locked, read_witness
from ina.run.tokens import FILE as TOKENS

TOKENS_FACT = "tokens"
"""Name under which a backup stores the contents of the file of tokens."""
_MODULE = "ina.run.launch.run_process"
_ASIDE = (FILE, f"{FILE}-wal", f"{FILE}-shm")


def back_up(folder: Path, to: Path) -> None:
    """Copy the state in `folder`, with its tokens, into the new file `to`. Raises StoreError.

    A controller may use the state meanwhile.
    """
    if to.exists():
        raise StoreError(f"{to} exists: want the name of a new file")
    if not (folder / FILE).exists():
        raise StoreError(f"{folder} has no {FILE}: want the --state of a controller")
    if not to.parent.is_dir():
        raise StoreError(f"{to.parent} is not a directory: want a file in an existing directory")
    witness = read_witness(folder)
    with _opened(folder / FILE, to.with_name(f"{to.name}.part"), witness) as (file, store):
        if (tokens := folder / TOKENS).exists():
            store.set_fact(TOKENS_FACT, tokens.read_text())
        store.close()
        file.chmod(0o600)
        file.replace(to)


def restore(backup: Path, folder: Path) -> int:
    """Replace the state in `folder` by a backup; return the number of the backup's last event.

    The folder is created if it does not exist. The old files are moved to a subfolder.

    Raises StoreError if `backup` is not a backup, or is a backup of another state than the one in `folder`,
    or if a controller uses the folder.
    """
    if not backup.exists():
        raise StoreError(f"{backup} does not exist: want a file that 'ina controller backup' has made")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _alone(folder), _opened(backup, folder / "restoring") as (file, store):
        if store.fact("policies") is None:
            raise StoreError(f"{backup} is no backup of a controller: want a file of 'ina controller backup'")
        witness = read_witness(folder, doubted=True)
        if witness is not None and witness["state"] != store.identity:
            raise StoreError(
                f"{backup} has the state {store.identity}, and {folder} the state {witness['state']}: want"
                f" another --state, or 'ina controller forget --state {folder}' first"
            )
        tokens, last = store.fact(TOKENS_FACT), store.last
        generation = max(store.generation, (witness or {}).get("generation", 0))
        store.set_fact("generation", str(generation))
        store.set_fact(RESTORED, "1")
        store.close()
        _move_aside(folder, _ASIDE, "before-restore")
        file.replace(folder / FILE)
        files.write(folder / WITNESS, {"state": store.identity, "generation": generation, "seq": last})
    if tokens is not None and not (folder / TOKENS).exists():
        files.write(folder / TOKENS, json.loads(tokens), synced=True)
    return last


def adopt(folder: Path) -> int:
    """Accept a state that has lost its latest events; return the number of the last event that is left.

    Raises StoreError.
    """
    with _alone(folder), Store(folder, older=True) as store:
        store.set_fact(RESTORED, "1")
        last = store.last
        files.write(folder / WITNESS, {"state": store.identity, "generation": store.generation, "seq": last})
    return last


def forget(folder: Path) -> list[int]:
    """End all runs of a state, and move its files to a subfolder; return the numbers of the ended runs.

    The next controller then starts with no jobs, and with the same tokens. Raises StoreError if a controller
    uses the state, or if Slurm or Ray still runs some of its runs.
    """
    with _alone(folder):
        runs = LocalRuns(folder / "runs")
        folders = {number: folder / "runs" / str(number) for number in sorted(runs.known())}
        for number, place in folders.items():
            engine = (files.read(place / "run.json") or {}).get("engine", "local")
            status = runs.status(number)  # never over for a runner of another version
            if engine in ("slurm", "ray") and not (status and status.over):
                raise StoreError(
                    f"run {number} in {place.parent} is a run of {engine}: end it in that engine, and remove"
                    " its folder"
                )
        _end(map(files.process_of, folders.values()))
        _end(_strays(folder))
        witness = read_witness(folder, doubted=True)
        _move_aside(folder, (*_ASIDE, "runs", "external", "logs"), "forgotten")
        if witness is not None:
            files.write(folder / WITNESS, {**witness, "seq": 0})
    return [*folders]


def check_processes(folder: Path, identity: str) -> None:
    """Check that no runner of the state `identity` uses another folder, which would be a copy of `folder`.

    Also end the runners of `folder` whose run folders have been removed. Raises StoreError if a runner uses
    another folder.
    """
    for process, place in _processes():
        elsewhere = place.parent.parent
        with contextlib.suppress(OSError, ValueError):  # another user's, or gone
            if elsewhere != folder and (read_witness(elsewhere, doubted=True) or {}).get("state") == identity:
                raise StoreError(
                    f"process {process} of the state {identity} runs in {place}: start the controller with"
                    f" --state {elsewhere}, or end all runs there: 'ina controller forget --state"
                    f" {elsewhere}'"
                )
    _end(_strays(folder))


def _strays(folder: Path) -> list[int]:
    """Return the process IDs of a state's runners whose run folders have been removed."""
    return [
        process for process, place in _processes() if place.parent.parent == folder and not place.exists()
    ]


def _processes() -> Iterator[tuple[int, Path]]:
    """Yield the process ID and the run folder of each runner (`launch.run_process`) on this machine."""
    for each in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            arguments = each.read_bytes().decode(errors="replace").split("\0")
            if len(arguments) > 2 and arguments[-3] == _MODULE:
                yield int(each.parent.name), Path(arguments[-2])


def _end(processes: Iterable[int | None]) -> None:
    """End processes, and wait until they have ended. Raises StoreError if some do not end."""
    left = {process for process in processes if process is not None}
    for number in (signal.SIGTERM, signal.SIGKILL):
        for process in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(process, number)
        until = time.monotonic() + STOP_S
        while left and time.monotonic() < until:
            left = {process for process in left if is_running(process)}
            time.sleep(0.02)
    if left:
        raise StoreError(f"processes {', '.join(map(str, sorted(left)))} do not end")


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Lock the state in `folder` while the context lasts.

    Raises StoreError if a controller uses the state, or the folder does not exist.
    """
    if not folder.is_dir():
        raise StoreError(f"{folder} does not exist: want the --state of a controller")

    def refuse(holder: str) -> None:
        raise StoreError(f"{holder} uses the state in {folder}: end that controller first")

    with locked(folder, on_wait=refuse):
        yield


@contextlib.contextmanager
def _opened(
    source: Path, beside: Path, witness: Mapping[str, Any] | None = None
) -> Iterator[tuple[Path, Store]]:
    """Copy the state's file `source` into the temporary folder `beside`; yield the copy's path and its store.

    If `witness`, the state's witness, is given, the copy must have the event that the witness names, and all
    events before it. Raises StoreError.
    """
    shutil.rmtree(beside, ignore_errors=True)
    try:
        beside.mkdir(mode=0o700, parents=True)
        copy(source, beside / FILE)
        if witness is not None:
            files.write(beside / WITNESS, witness)
        with Store(beside) as store:
            yield beside / FILE, store
    except OSError as error:
        raise StoreError(f"{error.filename or beside}: {error.strerror}") from error
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _move_aside(folder: Path, names: tuple[str, ...], why: str) -> None:
    number = next(n for n in range(1, 1 << 20) if not (folder / f"{why}-{n}").exists())
    for name in names:
        if (folder / name).exists():
            (folder / f"{why}-{number}").mkdir(mode=0o700, exist_ok=True)
            (folder / name).replace(folder / f"{why}-{number}" / name)
