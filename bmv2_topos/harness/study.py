"""A study: a function, the parameters to sweep and the quantities to measure, for the harness to run.

Most files for ``ina experiment`` hold a study. Every combination of parameters is run with every seed, and
again in each ablation, a variant that changes some parameters of all runs. The page has a table of medians
and ranges over the seeds for each variant, the effect of each ablation, and a plot for each measured
quantity. For other tables and plots, use `Experiment`.
"""

from __future__ import annotations

import inspect
import itertools
import math
import re
import reprlib
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from bmv2_topos.harness.errors import BadExperiment
from bmv2_topos.harness.model import Call, Experiment
from bmv2_topos.harness.rows import ResultRow, Value, markdown, selected
from bmv2_topos.plots import draw_lines, ticks
from controller.vocabulary.errors import kind

SEED: Final = "seed"
VARIANT: Final = "variant"
FULL: Final = "full"
"""Name of the variant without any ablation."""
MOST_SEEDS: Final = 1_000_000
MOST_NUMBER: Final = 2**53
"""Largest integer that every reader of JSON represents exactly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """A function, the parameters to run it with, and the quantities to compute from the results."""

    title: str
    run: Callable[..., Any]
    """Function to run, with the parameters by name, and with ``seed`` if it has such a parameter. It returns
    the input of `measure`, for instance a `Report`."""
    sweep: Mapping[str, Sequence[Value]]
    """Values of each parameter to vary, run in every combination; other parameters keep their defaults. The
    first parameter with numbers as values is the x axis of plots."""
    measure: Mapping[str, Callable[[Any], Value]]
    """Functions that compute the columns from the result of `run`, by column name. Names should contain the
    unit."""
    seeds: int = 1
    """Number of seeds: each combination of parameters is run once with each seed."""
    first_seed: int = 1
    """The first seed; the other seeds are the integers after it."""
    ablations: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    """Variants by name, each with the parameters that it changes in all runs."""
    question: str = ""
    about: str = ""
    limits: str = ""
    """Limits of the results. `question`, `about` and `limits` are texts of the page, in Markdown."""
    real: bool = False
    """True if results depend on the machine, as with real processes: such runs go one at a time, and
    `compare` leaves them out."""

    def __post_init__(self) -> None:
        """Convert NumPy numbers to Python numbers, also in arrays and lists of `sweep` and `ablations`."""
        for name in ("sweep", "ablations"):
            if isinstance(values := getattr(self, name), Mapping):
                object.__setattr__(self, name, {key: _plain(column) for key, column in values.items()})
        for name in ("seeds", "first_seed"):
            object.__setattr__(self, name, _plain(getattr(self, name)))

    def experiment(self, name: str, source: str) -> Experiment:
        """Return the study as an experiment of this name.

        Raises BadExperiment, which names `source` and the field, if a field is invalid.
        """
        for complaint in itertools.chain(self._wrong_kinds(), self._complaints()):
            raise BadExperiment(f"{source}: {complaint}")
        return Experiment(
            name=name,
            source=source,
            title=self.title,
            question=self.question,
            about=f"{self.about.strip()}\n\n{self._described()}".strip(),
            scenarios=self._runs,
            measure=self._measured,
            tables=self._tables,
            findings=self._findings,
            limits=self.limits,
            plots=partial(self._plots, name),
            timed=frozenset(self.measure) if self.real else frozenset(),
        )

    def _wrong_kinds(self) -> Iterator[str]:
        for name in ("title", "question", "about", "limits"):
            if not (isinstance(value := getattr(self, name), str) and _is_written(value)):
                yield f"{name} is {value!r}; {_TEXT}"
        for name in ("sweep", "measure", "ablations"):
            if not isinstance(value := getattr(self, name), Mapping):
                yield f"{name} is {kind(value)}; it must be a dict"
            elif bad := [
                each for each in value if not (isinstance(each, str) and each.strip() and _is_written(each))
            ]:
                yield f"{name} has the name {_shown(bad[0])}; {_TEXT}"
        for name, changes in self.ablations.items():
            if not isinstance(changes, Mapping):
                yield f"ablation {name!r} is {kind(changes)}; it must be a dict of parameters"
        for name, function in {
            "run": self.run,
            **{f"measure {name!r}": function for name, function in self.measure.items()},
        }.items():
            if not callable(function):
                yield f"{name} is {kind(function)}; it must be a function"
        for name in ("seeds", "first_seed"):
            if not isinstance(value := getattr(self, name), int):
                yield f"{name} is {kind(value)}; it must be a whole number"

    def _complaints(self) -> Iterator[str]:
        taken = inspect.signature(self.run).parameters
        any_name = any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken.values())
        given = {"sweep": self.sweep, **{f"ablation {name!r}": each for name, each in self.ablations.items()}}
        for where, parameters in given.items():
            for name in parameters:
                if name not in taken and not any_name:
                    yield f"{where}: run takes no parameter {name!r}; it takes {', '.join(taken)}"
        for name, values in self.sweep.items():
            if isinstance(values, str) or not isinstance(values, Sequence) or not values:
                yield f"sweep: {name} is {values!r}; it must be a list of one value or more"
            elif bad := [value for value in values if not _is_label(value)]:
                yield f"sweep: {name} has {_shown(bad[0])}, {_LABEL}"
            elif len({*values}) < len(values):
                yield f"sweep: {name} has a value twice: {', '.join(map(str, values))}"
        for ablation, changes in self.ablations.items():
            for name, value in changes.items():
                if not (_is_label(value) if name in (*self.sweep, SEED) else _is_written(str(value))):
                    yield f"ablation {ablation!r}: {name} is {_shown(value)}, {_LABEL}"
        for name, parameter in taken.items():
            if (
                parameter.default is parameter.empty
                and parameter.kind is not parameter.VAR_KEYWORD
                and name not in (*self.sweep, SEED)
            ):
                yield f"run takes {name!r}, which has no default and is not in sweep"
        both = {*self.measure} & {*self.sweep, SEED, VARIANT}
        wrong = (
            (
                not 1 <= self.seeds <= MOST_SEEDS,
                f"seeds is {_shown(self.seeds)}; it must be from 1 to {MOST_SEEDS}",
            ),
            (
                abs(self.first_seed) > MOST_NUMBER - MOST_SEEDS,
                f"first_seed is {_shown(self.first_seed)}; all seeds must be from -2**53 to 2**53",
            ),
            (
                self.seeds > 1 and not self._takes_seed(),
                f"seeds is {_shown(self.seeds)}, and run takes no parameter 'seed'",
            ),
            (not self.measure, "measure is empty; it must have a column or more"),
            (
                bool(both),
                f"measure: {min(both, default='')!r} is a parameter, too; columns need names of their own",
            ),
            (
                FULL in self.ablations,
                f"ablations: {FULL!r} is the name of the variant without any ablation",
            ),
        )
        yield from (text for is_wrong, text in wrong if is_wrong)

    def _takes_seed(self) -> bool:
        return SEED in inspect.signature(self.run).parameters

    def _variants(self) -> Mapping[str, Mapping[str, Value]]:
        return {FULL: {}, **self.ablations}

    def _described(self) -> str:
        swept = [f"`{name}` ({', '.join(map(_text, values))})" for name, values in self.sweep.items()]
        parts = [f"Swept: {', '.join(swept) or 'nothing'}; {self.seeds} seed{'s' * (self.seeds > 1)}."]
        for name, changes in self.ablations.items():
            changed = ", ".join(f"`{key}` is {_text(value)}" for key, value in changes.items())
            parts.append(f"*{name.capitalize()}*: {changed}.")
        return " ".join(parts)

    def _runs(self, quick: bool) -> Sequence[Call]:
        swept = {
            name: list(dict.fromkeys((values[0], values[-1]))) if quick else list(values)
            for name, values in self.sweep.items()
        }
        if self._takes_seed():
            seeds = range(self.first_seed, self.first_seed + self.seeds)
            swept[SEED] = list(seeds[:1] if quick else seeds)
        found: dict[tuple[tuple[str, Value], ...], Call] = {}
        for variant, changes in self._variants().items():
            for values in itertools.product(*swept.values()):
                parameters = {**dict(zip(swept, values, strict=True)), **changes}
                labels: dict[str, Value] = {VARIANT: variant} if self.ablations else {}
                labels |= {name: parameters[name] for name in swept}
                call = Call(labels=labels, call=partial(self.run, **parameters), real=self.real)
                found.setdefault(tuple(labels.items()), call)  # an ablation may fix what is swept
        return list(found.values())

    def _measured(self, result: Any) -> ResultRow:
        row = {name: _plain(measure(result)) for name, measure in self.measure.items()}
        for name, value in row.items():
            if value is not None and not isinstance(value, int | float | str):
                raise TypeError(f"measure {name!r} is {value!r}; it must be a number, a text or None")
            if isinstance(value, int):
                float(value)  # raises OverflowError here, where the run and the line are named
            elif isinstance(value, str):
                value.encode()  # UnicodeEncodeError likewise
        return row

    # ------------------------------------------------------------------ the page

    def settings(self, rows: Sequence[ResultRow]) -> list[dict[str, Value]]:
        """Return the distinct settings of the rows; a setting is a row's labels without the seed."""
        names = [name for name in (VARIANT, *self.sweep) if rows and name in rows[0]]
        found = dict.fromkeys(tuple(row[name] for name in names) for row in rows)
        return [dict(zip(names, values, strict=True)) for values in found]

    def _tables(self, rows: Sequence[ResultRow]) -> str:
        parts = []
        for variant in self._variants() if self.ablations else [FULL]:
            chosen = selected(rows, variant=variant) if self.ablations else rows
            lines = [self._line(chosen, setting) for setting in self.settings(chosen)]
            table = markdown([*self.sweep, *self.measure], lines)
            parts.append(f"### {variant.capitalize()}\n\n{table}" if self.ablations else table)
        if any(len(selected(rows, **setting)) > 1 for setting in self.settings(rows)):
            parts.insert(0, "Medians over the seeds, with the least and the greatest value.")
        return "\n\n".join(parts)

    def _line(self, rows: Sequence[ResultRow], setting: Mapping[str, Value]) -> list[str]:
        return [
            *(_text(setting[name]) for name in self.sweep),
            *(_cell(rows, name, setting) for name in self.measure),
        ]

    def _findings(self, rows: Sequence[ResultRow]) -> str:
        """Describe the effect of each ablation on each quantity, over all settings."""
        lines = []
        for name, ablation in itertools.product(self.measure, self.ablations):
            ratios = []
            for setting in self.settings(selected(rows, variant=ablation)):
                without = numbers(rows, name, setting)
                full = numbers(rows, name, {**setting, VARIANT: FULL})
                if full and without and statistics.median(full):
                    ratios.append(statistics.median(without) / statistics.median(full))
            if ratios:
                lines.append(f"- {name}, {ablation}: {_spread(ratios)} times as much as {FULL}.")
        return "\n".join(lines)

    def _plots(self, prefix: str, rows: Sequence[ResultRow], directory: Path) -> list[Path]:
        """Draw the medians of each quantity: a line for each setting of the parameters not on the x axis."""
        numeric = [
            name
            for name, values in self.sweep.items()
            if all(isinstance(each, int | float) for each in values)
        ]
        x = next(iter([*numeric, *self.sweep]), "")
        values = list(dict.fromkeys(row[x] for row in rows)) if x else []
        if len(values) < 2:
            return []
        paths = []
        for name in self.measure:
            lines, dashed = self._lines(rows, name, x, values, places=x not in numeric)
            if lines:
                path = directory / f"{prefix}-{re.sub('[^a-z0-9]+', '-', name.lower()).strip('-')}.svg"
                x_ticks = None if x in numeric else ticks(values)
                draw_lines(lines, path, x=x, y=name, x_ticks=x_ticks, dashed=dashed)
                paths.append(path)
        return paths

    def _lines(
        self, rows: Sequence[ResultRow], name: str, x: str, values: Sequence[Value], *, places: bool
    ) -> tuple[dict[str, list[tuple[float, float]]], list[str]]:
        """Return the points (x, y) of each line by its label, and the labels of the ablations' lines.

        With `places`, x is the index of a value in `values` instead of the value itself.
        """
        lines: dict[str, list[tuple[float, float]]] = {}
        ablations = []
        keys = [key for key in self.sweep if key != x]
        settings = dict.fromkeys(tuple(row[key] for key in keys) for row in rows)
        for setting, variant in itertools.product(settings, self._variants()):
            fixed: dict[str, Value] = dict(zip(keys, setting, strict=True))
            at = {**fixed, VARIANT: variant} if self.ablations else fixed
            words = [f"{key} {_text(value)}" for key, value in fixed.items()]
            label = ", ".join(words + [variant] * (variant != FULL)) or FULL
            points = []
            for place, value in enumerate(values):
                if found := numbers(rows, name, {**at, x: value}):
                    along = float(place) if places or not isinstance(value, int | float) else float(value)
                    points.append((along, statistics.median(found)))
            if points:
                lines[label] = points
                ablations += [label] * (variant != FULL)
        return lines, ablations


def numbers(rows: Sequence[ResultRow], name: str, setting: Mapping[str, Value]) -> list[float]:
    """Return the numbers of a column in the rows with these labels."""
    return [value for row in selected(rows, **setting) if isinstance(value := row.get(name), int | float)]


def _cell(rows: Sequence[ResultRow], name: str, setting: Mapping[str, Value]) -> str:
    found = numbers(rows, name, setting)
    values = (row.get(name) for row in selected(rows, **setting))
    texts = dict.fromkeys(_text(value) for value in values if not isinstance(value, int | float))
    return ", ".join([*([_spread(found)] if found else []), *texts])


def _spread(values: Sequence[float]) -> str:
    """Return median, least and greatest value as text, as in ``1.5 (1.25..1.75)``."""
    median, least, most = map(_text, (statistics.median(values), min(values), max(values)))
    return median if least == most else f"{median} ({least}..{most})"


def _text(value: Value) -> str:
    return "-" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)


def _plain(value: Any) -> Any:
    """Convert NumPy numbers to Python numbers: `value` itself, or the numbers in an array, list or dict."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple):
        return [*map(_number, value)]
    if isinstance(value, Mapping):
        return {name: _number(each) for name, each in value.items()}
    return _number(value)


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


_LABEL: Final = (
    "which cannot name a row; values must be finite numbers (integers up to 2**53), texts, true, false or "
    "None: give any other value a text as its name, and let run look the value up by that text"
)


def _is_label(value: object) -> bool:
    finite = not isinstance(value, float) or math.isfinite(value)
    small = not isinstance(value, int) or abs(value) <= MOST_NUMBER
    written = not isinstance(value, str) or _is_written(value)
    return finite and small and written and (value is None or isinstance(value, int | float | str))


_TEXT: Final = "it must be a text that can be written as UTF-8"


def _is_written(text: str) -> bool:
    """Return whether a text can be written as UTF-8, which cannot encode lone surrogates."""
    return not any("\ud800" <= each <= "\udfff" for each in text)


def _shown(value: object) -> str:
    """Return a value as text, shortened if long; Python cannot print integers of more than 4,300 digits."""
    if isinstance(value, int) and abs(value) >= 10**40:
        return f"{'-' * (value < 0)}an integer of {value.bit_length()} bits"
    return reprlib.repr(value)
