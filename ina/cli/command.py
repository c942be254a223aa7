"""What commands consist of: options, replies, failures; and output without layout: JSON, lines, numbers.

The exit codes:

===  =====================================================
0    done
1    the work failed
2    usage: an option or argument is wrong, or names a file that is not there or cannot be read
3    the P4 program does not compile
4    internal error: please report it
130  interrupted (Ctrl-C, signal 2); any signal N that ends the command gives 128 + N
===  =====================================================
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from ina.cli.screen import screen, visible

T = TypeVar("T")
FAILED = 1
USAGE = 2
COMPILE = 3
INTERNAL = 4
_SIZE = re.compile(r"(?P<number>\d+(\.\d+)?)((?P<prefix>[KMG])i?)?B?", re.IGNORECASE)


class Failure(Exception):
    """A command cannot continue; the process exits with `exit_code`."""

    def __init__(self, message: str, exit_code: int = FAILED) -> None:
        self.exit_code = exit_code
        super().__init__(message)


def refuse(wrong: object, message: str) -> None:
    """Raise Failure, as for wrong usage, with this message if `wrong` is true."""
    if wrong:
        raise Failure(message, USAGE)


@contextmanager
def failing_at(option: str, *errors: type[Exception], exit_code: int = USAGE) -> Iterator[None]:
    """Raise these errors, inside the context, as Failure, which begins with the option that caused them."""
    try:
        yield
    except errors as error:
        why = (error.strerror if isinstance(error, OSError) else None) or error
        raise Failure(f"{option}: {why}", exit_code) from error


class Declared:
    """Names and keywords with which typer makes an option, or, with ``argument=True``, an argument."""

    def __init__(self, *names: str, **keywords: Any) -> None:
        self.names, self.keywords = names, keywords


Json = Annotated[bool, Declared("--json", help="Print one JSON object instead of tables.")]


@dataclass(frozen=True, slots=True)
class Result:
    """Result of a command, for other programs to read.

    `metrics`, and the metrics of each job and each switch, have values by name, without nested objects. The
    name of a metric ends with the metric's SI unit.
    """

    name: str
    setup: Mapping[str, object]
    metrics: Mapping[str, object]
    jobs: Mapping[str, Mapping[str, object]] | None = None
    switches: Mapping[str, Mapping[str, object]] | None = None
    unused_keys: Sequence[str] | None = None
    """Keys in the command's input files that it does not use; None: the command reads no files with keys."""

    def document(self) -> dict[str, object]:
        """Return the result as the JSON object that ``--json`` prints."""
        setup = dict(self.setup)
        if self.unused_keys is not None:
            setup["unused_keys"] = list(self.unused_keys)
        fields: dict[str, object] = {"name": self.name, "setup": setup, "metrics": dict(self.metrics)}
        for name, parts in (("jobs", self.jobs), ("switches", self.switches)):
            if parts is not None:
                fields[name] = {part: dict(numbers) for part, numbers in parts.items()}
        return fields


@dataclass(frozen=True, slots=True)
class Listing:
    """A table for people, or its title alone if it has no columns.

    The first column, the columns named in `left` and the column `folded` are aligned left, all others right.
    On a narrow terminal, cells of the column `folded` are wrapped. A cell may have several lines; all columns
    are then aligned left.
    """

    title: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    left: Collection[str] = ()
    folded: str = ""


class Aside(str):
    """A line of a reply that is printed to standard error, because it is not part of the result."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Reply:
    """Reply of a command: a result for programs, and the same result as tables and lines for people.

    `failure` says why the command fails after it has printed the reply; "": it does not fail.
    """

    found: Result | Mapping[str, object]
    parts: Iterable[Listing | str] = ()
    failure: str = ""


def print_json(found: Result | Mapping[str, object]) -> None:
    """Print a result as JSON; infinite numbers and NaN become null."""
    document = found.document() if isinstance(found, Result) else found
    print(json.dumps(_finite(document), indent=2, allow_nan=False, default=str))


def _finite(value: object) -> object:
    """Replace infinite numbers and NaN in a value by None, because JSON does not have them."""
    if isinstance(value, Mapping):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def by_column(rows: Iterable[tuple[str, Callable[[T], str]]], columns: Iterable[T]) -> list[list[str]]:
    """Return the rows of a table with a column for each of `columns`.

    `rows` has the title of each row, and a function that returns the row's cell for a column.
    """
    shown = list(columns)
    return [[title, *map(cell, shown)] for title, cell in rows]


def say(text: str) -> None:
    """Print text in whole lines to standard error."""
    with screen.message(sys.stderr):
        print(visible(text), file=sys.stderr)


_ROUNDED = 0.9995
"""Smallest fraction of a unit that is shown in this unit: rounded to three digits, the fraction is 1.00."""


def seconds(value: float) -> str:
    """Format a duration for people."""
    for limit, factor, unit in ((1e-6, 1e9, "ns"), (1e-3, 1e6, "µs"), (1.0, 1e3, "ms")):
        if abs(value) < _ROUNDED * limit:
            return f"{_digits(value * factor)} {unit}"
    return f"{_digits(value)} s"


def rate(bits_per_second: float) -> str:
    """Format a bit rate for people; an infinite rate as "unlimited"."""
    if bits_per_second == math.inf:
        return "unlimited"
    for limit, unit in ((1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s")):
        if bits_per_second >= _ROUNDED * limit:
            return f"{_digits(bits_per_second / limit)} {unit}"
    return f"{_digits(bits_per_second)} b/s"


def _digits(value: float) -> str:
    """Format a number with three digits, or, from 1000 on, as a whole number; never with an exponent."""
    return f"{value:,.0f}" if abs(value) >= 1000 * _ROUNDED else f"{value:.3g}"


def count(value: float) -> str:
    """Format a number as a whole number with commas between thousands."""
    return f"{value:,.0f}"


def plural(number: float, noun: str) -> str:
    """Format a number with a noun, which gets -s or -es unless the number is 1."""
    if number == 1:
        return f"{count(number)} {noun}"
    return f"{count(number)} {noun}" + ("es" if noun.endswith("s") else "s")


def parse_size(option: str, text: str) -> int:
    """Return the number of bytes of a text such as ``64MB``, ``4KB`` or ``1000``, the value of `option`.

    KB, MB and GB are powers of 1024, as in benchmarks of collectives (NCCL tests, OSU). Raises Failure if the
    text is not a positive number with one of these units.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or not float(match["number"]):
        raise Failure(f"{option} {text!r} is not a size such as 64MB, 4KB or 1000", USAGE)
    return int(float(match["number"]) * 1024 ** " KMG".index((match["prefix"] or " ").upper()))
