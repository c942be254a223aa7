"""Descriptions in TOML, JSON or YAML: read with the line of every value, checked by tables of keys.

A table of keys has the check of each value (`Check`). Errors are `BadSpec`, such as
``cluster.toml:7: switch 's1': slots = -1: want a whole number, 0 to 1048576``.
"""

from __future__ import annotations

import difflib
import json
import re
import stat
import tomllib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

from controller.vocabulary.errors import BadSpec

FORMATS = (".toml", ".json", ".yaml", ".yml")
MAX_CHARACTERS = 1 << 27
MAX_SHOWN = 20
"""Maximum number of names that an error lists."""
MAX_LENGTH = 60
"""Maximum number of characters of a value that an error shows."""

Where = tuple[str | int, ...]
"""The path of a value in a document: keys of tables and positions in lists."""

Check = Callable[[Any], str | None]
"""Checks a value: returns None if it is valid, else a text such as "want true or false"."""


def non_default_fields(record: Any) -> dict[str, Any]:
    """Return the values of a record's fields that differ from their defaults."""
    usual = {
        each.name: each.default if each.default_factory is MISSING else each.default_factory()
        for each in fields(record)
    }
    return {name: value for name in usual if (value := getattr(record, name)) != usual[name]}


@dataclass(frozen=True, slots=True)
class Document:
    """The content of a file, with the line of each value."""

    path: str
    data: Mapping[str, Any]
    lines: Mapping[Where, int] = field(default_factory=dict, repr=False)

    def error(self, where: Where, message: str) -> BadSpec:
        """Return an error about the value at `where`, with the line of that or the enclosing value."""
        inner = (where[:end] for end in range(len(where), 0, -1))
        line = next((self.lines[part] for part in inner if part in self.lines), 0)
        if not line and where:
            parts = (number for part, number in self.lines.items() if part[: len(where)] == where)
            line = min(parts, default=0)
        place = f"{self.path}:{line}" if line else self.path
        return BadSpec(f"{place}: {message}", where=where, message=message)

    def tables(self, key: str) -> list[tuple[Where, Mapping[str, Any]]]:
        """Return path and content of each table in the list at `key`, if there is one. Raises BadSpec."""
        found = self.data.get(key, [])
        if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
            raise self.error((key,), f"{key}: want a list of tables, such as [[{key}]] in TOML")
        return [((key, number), each) for number, each in enumerate(found)]

    def check(
        self, where: Where, checks: Mapping[str, Check], *, what: str = "", require: Collection[str] = ()
    ) -> Mapping[str, Any]:
        """Return the table at `where` if all its keys are known and its values valid.

        Args:
            where: Path of the table in the document.
            checks: The check of each known key.
            what: Beginning of the error message, such as a name.
            require: Keys that must be there.

        Raises BadSpec, with the line.
        """
        table: Any = self.data
        for part in where:
            table = table[part]
        begin = f"{what}: " if what else ""
        if not isinstance(table, dict):
            raise self.error(where, f"{begin}{shown(table)}: want a table of {', '.join(checks)}")
        for key, value in table.items():
            if key not in checks:
                raise self.error((*where, key), f"{begin}unknown key {quoted(key)}; {hint(key, checks)}")
            if wanted := checks[key](value):
                raise self.error((*where, key), f"{begin}{key} = {shown(value)}: {wanted}")
        for key in require:
            if key not in table:
                raise self.error(where, f"{begin}{key} is missing")
        return table


def hint(key: str, known: Collection[str]) -> str:
    """Return a hint for an error: the known name that is similar to `key`; if none is, the known names."""
    if close := difflib.get_close_matches(key, known, n=1, cutoff=0.65):
        return f"did you mean {close[0]!r}?"
    more = f" and {len(known) - MAX_SHOWN:,} more" if len(known) > MAX_SHOWN else ""
    return f"known are {', '.join([*known][:MAX_SHOWN])}{more}"


def shown(value: object) -> str:
    """Return a value as text for an error, shortened to `MAX_LENGTH`."""
    try:
        text = str(value) if isinstance(value, float) else json.dumps(value, default=str)
    except ValueError:  # Python writes no number of thousands of digits; 0xfff… reads as one
        return "a number of too many digits"
    return brief(text)


def quoted(value: object) -> str:
    """Return a name in quotes, as errors show it; a value of another type as `shown` writes it."""
    return brief(repr(value)) if isinstance(value, str) else shown(value)


def brief(text: str) -> str:
    """Return a text for an error, shortened to `MAX_LENGTH` characters."""
    return text if len(text) <= MAX_LENGTH else f"{text[:MAX_LENGTH]}… ({len(text)} characters)"


# --------------------------------------------------------------------------- checks of values


def _between(value: object, least: float, most: float) -> bool:
    """Return whether a value is a number in these bounds; nan and true do not count as numbers."""
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def with_schema(**schema: Any) -> Callable[[Check], Check]:
    """Return a decorator that attaches a JSON Schema to a check.

    The check may accept values that the schema does not allow.
    """

    def attach(check: Check) -> Check:
        setattr(check, "schema", schema)  # noqa: B010 - of a function
        return check

    return attach


def json_schema(check: Check) -> Mapping[str, Any]:
    """Return a JSON Schema of the values that pass a check; {}: no schema is known."""
    found: Mapping[str, Any] = getattr(check, "schema", {})
    return found


def whole(least: int, most: int) -> Check:
    """Return the check that a value is a whole number from `least` to `most`; 1e3 is whole, true is not."""

    @with_schema(type="integer", minimum=least, maximum=most)
    def check(value: object) -> str | None:
        good = _between(value, least, most) and value == int(value)  # type: ignore[call-overload]
        return None if good else f"want a whole number, {least} to {most}"

    return check


def number(least: float, most: float, unit: str = "a number", *, above: bool = False) -> Check:
    """Return the check that a value is a finite number from `least` to `most`.

    Args:
        least: The lowest valid value.
        most: The highest valid value.
        unit: The wanted quantity, for the error message, such as "seconds".
        above: Whether `least` itself is invalid.
    """

    @with_schema(type="number", maximum=most, **{"exclusiveMinimum" if above else "minimum": least})
    def check(value: object) -> str | None:
        good = _between(value, least, most) and (value != least or not above)
        return None if good else f"want {unit}, {'above' if above else 'from'} {least:g} to {most:g}"

    return check


@with_schema(type="boolean")
def flag(value: object) -> str | None:
    """Check that a value is true or false."""
    return None if isinstance(value, bool) else "want true or false"


def one_of(choices: Collection[str]) -> Check:
    """Return the check that a value is one of these texts."""
    wanted = f"want one of {', '.join(map(repr, choices))}"
    return with_schema(enum=[*choices])(lambda value: None if value in choices else wanted)


@with_schema(type="string", maxLength=200, pattern=r"^[A-Za-z0-9]([A-Za-z0-9_. -]*[A-Za-z0-9_.-])?$(?!\n)")
def name(value: object) -> str | None:
    """Check that a value is a name of printable characters."""
    good = isinstance(value, str) and value and value.strip() == value and value.isprintable()
    good = good and len(value) <= 200  # type: ignore[arg-type]
    return None if good else "want 1 to 200 printable characters in quotes"


def ipv4(value: object) -> str | None:
    """Check that a value is an IPv4 address of one machine."""
    try:
        address = IPv4Address(value) if isinstance(value, str) else None
    except ValueError:
        address = None
    good = address is not None and not (address.is_multicast or address.is_unspecified)
    return None if good else "want an IPv4 address, such as 10.0.0.1"


def mac(value: object) -> str | None:
    """Check that a value is a MAC address of one machine."""
    good = isinstance(value, str) and re.fullmatch(r"[0-9a-fA-F]{2}(:[0-9a-fA-F]{2}){5}", value)
    if not good or int(str(value)[1], 16) & 1:  # this bit marks the address of a group
        return "want a MAC address of one machine, such as 02:00:00:00:00:01"
    return None


def listing(check: Check, *, least: int = 1, most: int = 1_000_000) -> Check:
    """Return the check for a list of `least` to `most` values, each of which passes `check`."""

    @with_schema(type="array", minItems=least, maxItems=most, items=json_schema(check))
    def all_good(value: object) -> str | None:
        if not isinstance(value, list) or not least <= len(value) <= most:
            return f"want a list of length {least} to {most}"
        wrong = next((number for number, each in enumerate(value) if check(each)), None)
        return None if wrong is None else f"element {wrong}, {shown(value[wrong])}: {check(value[wrong])}"

    return all_good


def mapping(check: Check) -> Check:
    """Return the check for a table whose keys are names and whose values pass `check`."""

    @with_schema(type="object", propertyNames=json_schema(name), additionalProperties=json_schema(check))
    def all_good(value: object) -> str | None:
        if not isinstance(value, dict):
            return "want a table"
        wrong = next((key for key, each in value.items() if name(key) or check(each)), None)
        return None if wrong is None else f"{quoted(wrong)}: {check(value[wrong]) or name(wrong)}"

    return all_good


# --------------------------------------------------------------------------- reading


def read(path: Path) -> Document:
    """Read a file in the format of its suffix (`FORMATS`). Raises BadSpec.

    Pipes and devices are not opened: that could block for ever, and a pipe cannot be read a second time.
    """
    try:
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            raise BadSpec(f"{path}: cannot be read: not a regular file")
        if path.suffix not in FORMATS:
            raise BadSpec(f"{path}: want a name that ends in {', '.join(FORMATS)}")
        with path.open(encoding="utf-8-sig") as file:
            text = file.read(MAX_CHARACTERS + 1)
    except OSError as error:
        raise BadSpec(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadSpec(f"{path}: cannot be read: {encoding_of(path)}") from error
    if len(text) > MAX_CHARACTERS:
        raise BadSpec(f"{path}: longer than {MAX_CHARACTERS} characters")
    return parse(text, str(path))


_BEGINNINGS = {
    b"\xff\xfe": "UTF-16",
    b"\xfe\xff": "UTF-16",
    b"PK\x03\x04": "a workbook (.xlsx) or another archive",
    b"\xd0\xcf\x11\xe0": "a workbook (.xls)",
    b"\x1f\x8b": "compressed by gzip",
    b"PAR1": "a Parquet file",
}


def encoding_of(path: Path) -> str:
    """Describe, for an error, what a file contains instead of text in UTF-8. Raises OSError."""
    data = path.read_bytes()
    for begin, what in _BEGINNINGS.items():
        if data.startswith(begin):
            return f"it is {what}; it must be text in UTF-8"
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return f"line {line} is not UTF-8 (byte 0x{data[error.start]:02x}); it must be text in UTF-8"
    return "it has null characters; it must be text in UTF-8"


def parse(text: str, path: str) -> Document:
    """Parse a text in the format of `path`'s suffix, or in YAML if the suffix is unknown. Raises BadSpec."""
    reader = {".toml": _toml, ".json": _json}.get(Path(path).suffix, _yaml)
    try:
        data, lines = reader(text, path)
    except (RecursionError, ValueError) as error:
        raise BadSpec(f"{path}: a number has too many digits, or brackets are too deep") from error
    if not isinstance(data, dict):
        raise BadSpec(f"{path}: want a table at the top, not {shown(data)}")
    return Document(path, data, lines)


_HEAD = re.compile(r"(\[\[?)\s*([\w.-]+)\s*\]")
_KEY = re.compile(r"[\"']?([\w-]+)[\"']?\s*=")
_PIECE = re.compile(
    r'"""(?:\\.|[^\\])*?"""|'
    + r"'''.*?'''"
    + r'|"(?:\\.|[^"\\\n])*"|'
    + r"'[^'\n]*'"
    + r"|#[^\n]*|[\[\]{}]|\n",
    re.S,
)


def _toml(text: str, path: str) -> tuple[Any, dict[Where, int]]:
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadSpec(f"{path}: not TOML: {error}") from error
    lines: dict[Where, int] = {}
    counts: dict[Where, int] = {}
    table: Where = ()
    for line, content in _statements(text):
        if head := _HEAD.match(content):
            *above, last = head[2].split(".")
            table = ()
            for part in above:
                table = (*table, part)
                if table in counts:  # [list.key] is in the last table of the list
                    table = (*table, counts[table])
            table = (*table, last)
            if head[1] == "[[":
                counts[table] = counts.get(table, -1) + 1
                table = (*table, counts[table])
            lines.setdefault(table, line)
        elif key := _KEY.match(content):
            lines.setdefault((*table, key[1]), line)
    return data, lines


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of each line of valid TOML that begins a table or a key.

    Lines inside a string or a list of several lines are skipped.
    """
    line, depth, begin = 1, 0, 0
    for piece in _PIECE.finditer(text):
        match piece[0][0]:
            case "[" | "{":
                depth += 1
            case "]" | "}":
                depth -= 1
            case "\n" if depth == 0:
                yield line, text[begin : piece.start()].strip()
                line += 1
                line += text.count("\n", begin, piece.start())
                begin = piece.end()
    yield line, text[begin:].strip()


_TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[{}\[\]:,]|[^\s{}\[\]:,"]+')


def _json(text: str, path: str) -> tuple[Any, dict[Where, int]]:
    def no_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        keys = [key for key, _ in pairs]
        if len(keys) > len({*keys}):
            twice = Counter(keys).most_common(1)[0][0]
            raise BadSpec(f"{path}: the key {quoted(twice)} appears twice in one table")
        return dict(pairs)

    try:
        data = json.loads(text, object_pairs_hook=no_twins)
    except json.JSONDecodeError as error:
        raise BadSpec(f"{path}:{error.lineno}: not JSON: {error.msg}") from error
    return data, dict(_json_lines(text))


def _json_lines(text: str) -> Iterator[tuple[Where, int]]:
    """Yield the path and the line of every value of a valid JSON text."""
    way: list[str | int] = []
    line, at, key = 1, 0, True
    for token in _TOKEN.finditer(text):
        line += text.count("\n", at, token.start())
        at = token.start()
        match token[0]:
            case "{" | "[" as bracket:
                if way:
                    yield tuple(way), line
                way.append("" if bracket == "{" else 0)
            case "}" | "]":
                way.pop()
            case ",":
                if isinstance(number := way[-1], int):
                    way[-1] = number + 1
            case ":":
                key = False
                continue
            case value:
                if way and key and isinstance(way[-1], str):
                    way[-1] = json.loads(value)
                elif way:
                    yield tuple(way), line
        key = True


_NUMBER = re.compile(r"[-+]?([0-9][0-9_]*(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
_WORDS: Mapping[str, object] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("null", "Null", "NULL", "~", ""), None),
}
MAX_VALUES = 5_000_000
"""Maximum number of values of a YAML file: a few lines with aliases of aliases can stand for any number of
values."""


def yaml_module(what: str) -> Any:
    """Return the module PyYAML, which is optional. Raises BadSpec that names `what` as the user of YAML."""
    try:
        import yaml
    except ImportError:
        raise BadSpec(f"{what}: YAML needs PyYAML: pip install 'ina[yaml]'; TOML and JSON do not") from None
    return yaml


def dump_yaml(data: object, what: str) -> str:
    """Return data as YAML that `parse` reads back unchanged.

    Raises BadSpec without PyYAML, naming `what` as the part that needs it.
    """
    yaml = yaml_module(what)

    class Dumper(yaml.SafeDumper):  # type: ignore[name-defined,misc]
        """Quotes texts such as 1e5, which PyYAML reads as texts, but `parse` as values of another type."""

    def write(dumper: Any, text: str) -> Any:
        style = None if _plain(text) == text else "'"
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, write)
    text: str = yaml.dump(data, Dumper=Dumper, sort_keys=False, default_flow_style=None, allow_unicode=True)
    return text


def _yaml(text: str, path: str) -> tuple[Any, dict[Where, int]]:
    yaml = yaml_module(path)
    lines: dict[Where, int] = {}

    def value(node: Any, where: Where) -> Any:
        line = lines[where] = node.start_mark.line + 1
        if len(lines) > MAX_VALUES:
            raise BadSpec(f"{path}:{line}: more than {MAX_VALUES} values, counting repeats by aliases")
        if isinstance(node, yaml.SequenceNode):
            return [value(each, (*where, at)) for at, each in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode):
            return node.value if node.style else _plain(node.value)
        table: dict[str, Any] = {}
        for key, below in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.value in table:
                reason = (
                    f"the key {quoted(key.value)} appears twice"
                    if isinstance(key.value, str)
                    else "a key is not a text"
                )
                raise BadSpec(f"{path}:{key.start_mark.line + 1}: {reason}")
            table[key.value] = value(below, (*where, key.value))
            lines[(*where, key.value)] = key.start_mark.line + 1  # a list begins below its key
        return table

    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        problem = " ".join(str(getattr(error, "problem", error)).split())
        raise BadSpec(f"{path}{line}: not YAML: {problem}") from error
    return ({} if node is None else value(node, ())), lines


def _plain(text: str) -> object:
    """Return the value of an unquoted word, as in YAML 1.2's core schema: on is a text, 1e9 a number.

    1_000 is a number, too, as in TOML.
    """
    if text in _WORDS:
        return _WORDS[text]
    if _NUMBER.fullmatch(text):
        return float(text) if re.search(r"[.eE]", text) else int(text)
    return text
