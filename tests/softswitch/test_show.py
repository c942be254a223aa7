"""Passes of the compiler as text: what ``ina compile --dump`` prints."""

from __future__ import annotations

from softswitch.compiler import ir
from softswitch.compiler.show import show
from tests.programs import p4src_program

WORD = ir.Header("word_h", (("value", ir.Bits(32)),))
TWO = ir.Struct("two_t", (("first", WORD), ("second", WORD)))


def test_a_type_is_shown_whole_once_and_by_its_name_from_then_on() -> None:
    whole = "Header(name='word_h', fields=(('value', Bits(width=32, signed=False))))"
    assert show((WORD, WORD)) == f"({whole}, Header word_h)"
    assert show(TWO).splitlines() == [
        "Struct",
        "  name='two_t'",
        "  fields=",
        f"    ('first', {whole})",
        "    ('second', Header word_h)",
        "  union=False",
    ]


def test_another_type_of_the_same_name_is_shown_whole() -> None:
    other = ir.Header("word_h", (("bit", ir.Bits(1)),))
    assert show((WORD, other)).splitlines()[2:] == [
        "  Header(name='word_h', fields=(('bit', Bits(width=1, signed=False))))"
    ]


def test_a_program_with_many_lanes_is_shown_in_megabytes_not_in_tens() -> None:
    """Each expression holds its type: the headers, with all lanes. 256 lanes once took 80 s and 77 MB."""
    text = show(p4src_program("exclusive", LANES=32))
    assert text.count("'lanes_t'") == 1
    assert len(text) < 1_000_000
