"""Numbers of any size are compiled or refused: whoever reaches P4Runtime sends programs."""

from __future__ import annotations

import pytest

from softswitch.compiler import CompileError, compile_source

SQUARES = "const int a0 = 1 << 5000;" + "".join(f"const int a{i + 1} = a{i} * a{i};" for i in range(40))


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("const bit<8> x = 0x" + "f" * 50_000 + ";", "a number of 200000 bits"),
        ("const bit<8> x = 8w0b" + "1" * 50_000 + ";", "a number of 50000 bits"),
        ("const bit<8> x = " + "9" * 5_000 + "w1;", "too many digits"),
        ("const bit<8> x = 99999999999w1;", "a number of 99999999999 bits"),
        ("const int x = 1 << 0x" + "f" * 50_000 + ";", "a number of 200000 bits"),
        (SQUARES, "a number of 20001 bits"),
    ],
    ids=["hexadecimal", "binary", "width", "wide", "shift", "squares"],
)
def test_a_number_too_large_is_refused_with_its_size(program: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        compile_source(program)
