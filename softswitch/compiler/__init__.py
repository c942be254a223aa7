"""The P4 compiler's front end: compile P4_16 source for v1model, TNA or T2NA to typed IR.

The passes, in order:

1. preprocess   files and macros           → one text with line markers   `frontend.preprocess`
2. lex          the text                   → tokens with positions        `frontend.lexer`
3. parse        tokens                     → syntax tree                  `frontend`, `frontend.ast`
4. lower        names, types and constants → typed IR                     `lowering`, `ir`
5. settle       undefined behaviour        → typed IR                     `undefined`

Every error in a program is a `CompileError`, raised by the first pass that
detects it. Valid but unsupported source raises `Unsupported`; no part of a program is silently ignored.
The back ends (`softswitch.engine`) take the IR; `p4info` derives the control plane's view of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from softswitch.compiler.choice import Choice
from softswitch.compiler.errors import CompileError, Position, Unsupported, read_source

if TYPE_CHECKING:
    from p4src.messages import p4info_pb2
    from softswitch.compiler import ir
    from softswitch.compiler.undefined import Finding

__all__ = [
    "Choice",
    "CompileError",
    "Dump",
    "Position",
    "Unsupported",
    "compile_file",
    "compile_source",
    "find_undefined",
    "p4info",
    "p4info_from",
    "p4info_text",
    "preprocess_file",
]

# Called after each pass with its name and a function that renders its result.
Dump = Callable[[str, Callable[[], str]], None]


def _no_dump(name: str, render: Callable[[], str]) -> None:
    """Do nothing: the default `dump`, which shows no passes of the compilation."""


def compile_source(
    text: str,
    *,
    name: str = "<string>",
    defines: Mapping[str, str] | None = None,
    include_dirs: Sequence[str | Path] = (),
    preprocessed: bool = False,
    undefined: Choice | None = None,
    single_access: bool = False,
    dump: Dump = _no_dump,
) -> ir.Program:
    """Compile a program from memory.

    Args:
        text: The program's source.
        name: File name for positions in errors; the file's folder is searched for included files.
        defines: Preprocessor definitions.
        include_dirs: Further directories of included files.
        preprocessed: `text` is already preprocessed: a directive in it is an error.
        undefined: The choice for undefined values; None: the fastest choice.
        single_access: Raise CompileError if a packet may access a register of a program for Tofino twice, as
            the chip's compiler does; otherwise only warn about such a register.
        dump: Called with the name of each pass and a function that renders its result.

    Raises CompileError.
    """
    from softswitch.compiler.undefined import settled

    plain = _preprocess(text, name, defines=defines, include_dirs=include_dirs, preprocessed=preprocessed)
    dump("preprocess", lambda: plain)
    return settled(_lowered(plain, name, dump, single_access=single_access), undefined)


# The passes are imported where they are needed: most processes find their programs compiled already.


def _preprocess(text: str, name: str, **options: Any) -> str:
    from softswitch.compiler.frontend.preprocess import preprocess

    return preprocess(text, name, **options)


def _lowered(plain: str, name: str, dump: Dump, *, single_access: bool = False) -> ir.Program:
    from softswitch.compiler.frontend import parse_tokens
    from softswitch.compiler.frontend.lexer import tokenize
    from softswitch.compiler.lowering import lower
    from softswitch.compiler.show import show

    tokens = tokenize(plain, name)
    dump("lex", lambda: f"{len(tokens)} tokens")
    tree = parse_tokens(tokens, name)
    dump("parse", lambda: show(tree))
    program = lower(tree, name, single_access=single_access)
    dump("lower", lambda: show(program))
    return program


def compile_file(
    path: str | Path,
    *,
    defines: Mapping[str, str] | None = None,
    include_dirs: Sequence[str | Path] = (),
    undefined: Choice | None = None,
    single_access: bool = False,
    dump: Dump = _no_dump,
) -> ir.Program:
    """Compile the program in a file; for the other arguments see `compile_source`.

    Raises CompileError, or OSError if the file cannot be read.
    """
    return compile_source(
        read_source(path),
        name=str(path),
        defines=defines,
        include_dirs=include_dirs,
        undefined=undefined,
        single_access=single_access,
        dump=dump,
    )


def find_undefined(
    path: str | Path,
    *,
    defines: Mapping[str, str] | None = None,
    include_dirs: Sequence[str | Path] = (),
) -> list[Finding]:
    """Return the places where the program in a file depends on undefined behaviour.

    Raises CompileError (`Unsupported` for a program for Tofino), or OSError if the file cannot be read.
    """
    from softswitch.compiler.undefined import find

    name = str(path)
    plain = _preprocess(read_source(path), name, defines=defines, include_dirs=include_dirs)
    program = _lowered(plain, name, _no_dump)
    if program.tofino:
        raise Unsupported(
            "a search for undefined behaviour in a program for Tofino",
            Position(name, 1, 1),
            "a program for v1model",
        )
    return find(program)


def preprocess_file(
    path: str | Path,
    *,
    defines: Mapping[str, str] | None = None,
    include_dirs: Sequence[str | Path] = (),
) -> str:
    """Return the preprocessed text of a program: includes are inserted, macros expanded.

    Compiling that text gives the same result as compiling the file, positions included.
    """
    return _preprocess(read_source(path), str(path), defines=defines, include_dirs=include_dirs)


def p4info(program: ir.Program) -> p4info_pb2.P4Info:
    """Return the P4Info of a program; objects annotated with ``@hidden`` are left out.

    Raises CompileError if an ``@id`` is not a number, belongs to another kind of object, or is used twice.
    """
    from softswitch.compiler.p4info_export import Export

    return Export(program).message()


def p4info_from(serialized: bytes) -> p4info_pb2.P4Info:
    """Decode a serialized P4Info."""
    from p4src.messages import p4info_pb2

    return p4info_pb2.P4Info.FromString(serialized)


def p4info_text(message: p4info_pb2.P4Info) -> str:
    """Return P4Info in the text format that P4Runtime tools read."""
    from google.protobuf import text_format

    head = "# proto-file: p4/config/v1/p4info.proto\n# proto-message: p4.config.v1.P4Info\n\n"
    return head + text_format.MessageToString(message)
