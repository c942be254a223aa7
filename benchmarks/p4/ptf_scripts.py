"""Tests that p4testgen writes for PTF, as statements of scripts.

Its back end for PTF knows what that for STF cannot say: what registers hold before the packet comes. Its
tests are Python on the chip's ``bfrt_grpc``, always of one form, which is read here and not run: entries,
default actions and registers, one packet, and what has to leave.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from softswitch.stf import ScriptError
from softswitch.stf.script import Add, Expect, PacketLine, ScriptCommand, ScriptOperand, SetDefault, Statement

_CLASS = "class Test"
_DIGITS = 128
"""Of a value that has a mask: more bits than any key has."""


def scripts_of(text: str) -> Iterator[list[Statement] | ScriptError]:
    """Yield the statements of each test in a file, or why it cannot be a script; a torn end is no test."""
    preamble, *classes = text.split(f"\n{_CLASS}")
    line = preamble.count("\n") + 2
    for rest in classes:
        try:
            tree = ast.parse(f"{_CLASS}{rest}")
        except SyntaxError:
            return
        try:
            yield list(_Reader(line).statements(tree))
        except ScriptError as error:
            yield error
        line += rest.count("\n") + 1


class _Reader:
    def __init__(self, first_line: int) -> None:
        self._before = first_line - 1
        self._words: dict[str, object] = {}
        self._masked: list[tuple[int, int]] = []

    def statements(self, tree: ast.AST) -> Iterator[Statement]:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                for statement in node.body:
                    yield from self._statement(statement)

    def _statement(self, node: ast.stmt) -> Iterator[Statement]:
        line = self._before + node.lineno
        match node:
            case ast.Assign([ast.Name(name)], ast.Constant(value)):
                self._words[name] = value
            case ast.Expr(ast.Call(ast.Attribute(ast.Name("exp_pkt"), "set_do_not_care"), args)):
                first, count = map(_number, args)
                self._masked.append((first, count))
            case ast.Expr(ast.Call(ast.Attribute(ast.Name("self"), method), args)):
                yield from self._control(method, args, line)
            case ast.Expr(ast.Call(ast.Name("send_packet"))):
                yield PacketLine(line, self._port("ig_port"), self._bytes("pkt"))
            case ast.Expr(ast.Call(ast.Name("verify_packet"))):
                yield Expect(line, self._port("eg_port"), self._digits(), exact=True)
            case ast.Assign([ast.Name("reg_param")]):
                raise ScriptError("the value of a RegisterParam", line)

    def _control(self, method: str, args: list[ast.expr], line: int) -> Iterator[Statement]:
        match method, args:
            case "insertTableEntry", [
                ast.Constant(str(table)),
                ast.List(keys),
                ast.Constant(str(action)),
                data,
            ]:
                if any(_text(key, 0).startswith("$") for key in keys):
                    raise ScriptError("members of action profiles", line)
                matches = tuple((_text(key, 0), _operand(key)) for key in keys)
                yield Add(line, _name(table), None, matches, _name(action), _arguments(data))
            case "insertTableEntry", _:
                raise ScriptError("members of action profiles", line)
            case "overrideDefaultEntry", [ast.Constant(str(table)), ast.Constant(str(action)), data]:
                yield SetDefault(line, _name(table), _name(action), _arguments(data))
            case "setRegisterValue", [ast.Constant(str(name)), ast.List(fields), index]:
                for field in fields:
                    assert isinstance(field, ast.Tuple)
                    part, value = field.elts
                    of_struct = str(ast.literal_eval(part)).removeprefix(f"{name}.")
                    yield _write(line, f"{name}#{of_struct}", index, value)
            case "setRegisterValue", [ast.Constant(str(name)), value, index]:
                yield _write(line, name, index, value)
            case "setDirectRegisterValue", _:
                raise ScriptError("cells of a direct register", line)

    def _port(self, name: str) -> int:
        port = self._words[name]
        assert isinstance(port, int)
        return port

    def _bytes(self, name: str) -> bytes:
        data = self._words[name]
        assert isinstance(data, bytes)
        return data

    def _digits(self) -> str:
        digits = list(self._bytes("exp_pkt").hex().upper())
        for first, count in self._masked:
            for digit in range(first // 4, (first + count + 3) // 4):
                digits[digit] = "*"
        return "".join(digits)


def _name(name: str) -> str:
    return name.removeprefix("pipe.")


def _write(line: int, name: str, index: ast.expr, value: ast.expr) -> ScriptCommand:
    return ScriptCommand(line, "register_write", _name(name), (_number(index), _number(value)))


def _arguments(data: ast.expr) -> tuple[tuple[str, int], ...]:
    assert isinstance(data, ast.List)
    return tuple((_text(each, 0), _number(_positional(each)[1])) for each in data.elts)


def _operand(key: ast.expr) -> ScriptOperand:
    """Return the value of ``gc.KeyTuple(name, …)``, of any kind."""
    assert isinstance(key, ast.Call)
    named = {word.arg: _number(word.value) for word in key.keywords}
    if "low" in named:
        return ScriptOperand(named["low"], 0, 0, high=named["high"])
    value, *masks = map(_number, _positional(key)[1:])
    if masks:
        return ScriptOperand(value, masks[0], _DIGITS)
    return ScriptOperand(value, 0, 0, named.get("prefix_len"))


def _positional(call: ast.expr) -> list[ast.expr]:
    assert isinstance(call, ast.Call)
    return call.args


def _text(call: ast.expr, position: int) -> str:
    return str(ast.literal_eval(_positional(call)[position]))


def _number(expr: ast.expr) -> int:
    number = ast.literal_eval(expr)
    assert isinstance(number, int)
    return number
