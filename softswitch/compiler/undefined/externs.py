"""Effects of v1model's externs on the knowledge of a packet."""

from __future__ import annotations

from softswitch.compiler import ir
from softswitch.compiler.undefined.conditions import assume
from softswitch.compiler.undefined.paths import DROP_PORT, GROUP, SPEC
from softswitch.compiler.undefined.reads import Reader
from softswitch.compiler.undefined.state import State
from softswitch.compiler.undefined.values import constant, fitted

_TARGETS = ("register.read", "meter.execute_meter", "hash", "random")
"""Those whose first argument is written."""


class Externs:
    """Calls of externs; `clones` says whether any has asked for a clone."""

    def __init__(self, program: ir.Program, reader: Reader) -> None:
        self._program = program
        self._reader = reader
        self.clones = False

    def call(self, s: ir.Extern, state: State) -> None:
        """Do a call on one path."""
        function, args = s.function, s.args
        if function.startswith("clone"):
            self.clones = True
        if function.startswith(("verify_checksum", "update_checksum")):
            self._checksum(s, state)
            return
        inputs = args[1:] if function in _TARGETS else args
        for arg in inputs:
            for expr in arg:
                self._reader.reads(expr, state)
        match function:
            case "register.read":
                self._reader.bounded(
                    args[1][0], self._program.registers[s.instance].size, s.instance, s.pos, state
                )
                state.assign(args[0][0], None)
            case "meter.execute_meter":
                self._reader.bounded(
                    args[1][0], self._program.meters[s.instance].size, s.instance, s.pos, state
                )
                state.assign(args[0][0], fitted(args[0][0].type, 0, 2, trusted=False))
            case "hash":
                base, most = state.value(args[2][0]), state.value(args[-1][0])
                high = base.high + max(most.high, 1) - 1
                trusted = base.trusted and most.trusted
                state.assign(args[0][0], fitted(args[0][0].type, base.low, high, trusted=trusted))
            case "random":
                low, high_ = state.value(args[1][0]), state.value(args[2][0])
                trusted = low.trusted and high_.trusted
                top = max(low.high, high_.high)
                state.assign(args[0][0], fitted(args[0][0].type, low.low, top, trusted=trusted))
            case "mark_to_drop":
                state.values[SPEC] = constant(DROP_PORT)
                state.values[GROUP] = constant(0)

    def _checksum(self, s: ir.Extern, state: State) -> None:
        self._reader.reads(s.args[0][0], state)
        update = s.function.startswith("update")
        inputs = s.args[1:-2] if update else s.args[1:-1]
        for where in assume(state.copy(), s.args[0][0], True):
            for arg in inputs:
                for expr in arg:
                    self._reader.reads(expr, where)
        if update:
            target = s.args[-2][0]
            certain = state.value(s.args[0][0]).only == 1
            place, undefined = state.place(target), state.unset_at(target)
            state.assign(target, None)
            if undefined is not None and place is not None and not certain:
                state.unset[place] = undefined
