"""The typed intermediate representation: the front end's output and the back ends' input.

In the IR, everything that P4 decides at compile time is resolved:

* Names are resolved. Control and parser instances are inlined into the six blocks of the
  v1model pipeline; every table, action and extern instance is known by its control-plane name
  (``Ingress.admission.job``), every local variable by a name unique in the program.
* The parameters of the blocks are three storages that live as long as the packet:
  ``hdr``, ``meta`` and ``standard_metadata`` (whatever their names in the source). In programs for Tofino
  each is a struct with a part for ingress and one for egress
  (`softswitch.compiler.lowering.architectures.tna`).
* Types are explicit on every expression, constants are folded, ``int`` literals have the width
  of their context, serialisable enums and ``typedef``s are their underlying type.
* Calls have no arguments left to bind: an action's parameters are variables that either the caller
  assigns before `Call` (and reads back after, for ``out`` and ``inout``) or a table entry fills.

Semantics that P4 leaves open are fixed here, so that all back ends agree bit for bit:
variables and fields start at zero; an invalid header keeps its fields' values, and reading or
writing them is harmless; ``x / 0 == 0`` and ``x % 0 == 0``; a shift by at least the width gives 0
(-1 for a negative ``int<W>`` shifted right); a register, stack or counter index out of range
reads zero and writes nothing. ``setValid`` leaves the field values as they are. Other choices are made
in the program itself (`softswitch.compiler.undefined`).

* A packet's metadata and headers start at zero when ingress starts; `Program.variables` start at
  zero when ingress starts (parser, verify and ingress share them) and again when egress starts.
* ``push_front`` and ``pop_front`` leave the freed elements invalid and all zero, and move
  the next index, within 0..size. ``lastIndex`` of an empty stack is 2**32 - 1.
* `Extract` with a size: a size that is not a multiple of 8 is error ParserInvalidArgument; more bits
  than are left in the packet, PacketTooShort; more than the varbit's width, HeaderTooShort; checked in this
  order. `Advance` by a number of bits that is not a multiple of 8 is ParserInvalidArgument. A parser that
  enters a state for the 1001st time in one packet stops with ParserTimeout.
* Counters count packets and bytes, whatever their unit; bytes are the received frame's.
* Meters are two-rate three-colour markers without colour awareness (RFC 2698): green until
  they are configured and beyond the end of an array; they count packets, or bytes of the received frame.
* ``random`` draws ``low + next() % (high - low + 1)``, ``low`` if ``high < low``, where ``next`` is
  splitmix64 from the pipeline's seed.
* ``truncate`` cuts the sent frame; if called several times, the shortest length applies.
"""

from __future__ import annotations

from softswitch.compiler.errors import Position
from softswitch.compiler.ir.nodes import (
    Advance,
    Apply,
    Assign,
    Binary,
    Bits,
    Bool,
    Break,
    Call,
    Cast,
    Const,
    Continue,
    Emit,
    Enum,
    Exit,
    Expr,
    Extern,
    Extract,
    Forget,
    Header,
    If,
    Index,
    Inlined,
    IsValid,
    Last,
    LastIndex,
    Lookahead,
    Loop,
    Member,
    Mux,
    Next,
    PacketLength,
    Return,
    Scalar,
    SetValidity,
    Shift,
    Skip,
    Slice,
    SourceNode,
    Stack,
    Stmt,
    Struct,
    Switch,
    Type,
    Unary,
    Var,
    VarBits,
    Verify,
    width_of,
)
from softswitch.compiler.ir.program import (
    Action,
    ActionProfile,
    ActionRef,
    Annotation,
    ConstEntry,
    ControllerHeader,
    ControlObject,
    Counter,
    DataType,
    Digest,
    DirectCell,
    Invocation,
    Key,
    Meter,
    NewType,
    Param,
    ParserState,
    Pattern,
    Program,
    Register,
    RegisterArray,
    Remark,
    Table,
    Transition,
    group_action,
    members_table,
    plain_name,
)

__all__ = [
    "Action",
    "ActionProfile",
    "ActionRef",
    "Advance",
    "Annotation",
    "Apply",
    "Assign",
    "Binary",
    "Bits",
    "Bool",
    "Break",
    "Call",
    "Cast",
    "Const",
    "ConstEntry",
    "Continue",
    "ControlObject",
    "ControllerHeader",
    "Counter",
    "DataType",
    "Digest",
    "DirectCell",
    "Emit",
    "Enum",
    "Exit",
    "Expr",
    "Extern",
    "Extract",
    "Forget",
    "Header",
    "If",
    "Index",
    "Inlined",
    "Invocation",
    "IsValid",
    "Key",
    "Last",
    "LastIndex",
    "Lookahead",
    "Loop",
    "Member",
    "Meter",
    "Mux",
    "NewType",
    "Next",
    "PacketLength",
    "Param",
    "ParserState",
    "Pattern",
    "Position",
    "Program",
    "Register",
    "RegisterArray",
    "Remark",
    "Return",
    "Scalar",
    "SetValidity",
    "Shift",
    "Skip",
    "Slice",
    "SourceNode",
    "Stack",
    "Stmt",
    "Struct",
    "Switch",
    "Table",
    "Transition",
    "Type",
    "Unary",
    "Var",
    "VarBits",
    "Verify",
    "group_action",
    "members_table",
    "plain_name",
    "width_of",
]
