from __future__ import annotations

from pathlib import Path

import pytest

from bmv2_topos.wrap import main, wrap

PAGE = """\
# A heading that is longer than the width stays in one line

A paragraph in
two lines, that `has code` in it, and a [link](to/a/page.md) too.

- An item that goes on,
  indented as it was.
- Another - with a dash.

10. The tenth, with an
    indent of four.

| a | table that is longer than the width stays as it is |
| --- | --- |
```
code that is longer than the width stays as it is
```

    indented code that is longer than the width
![a picture that is longer than the width](a.svg)
<!-- a comment that is longer than the width -->
"""


def test_prose_is_filled_and_all_else_stays() -> None:
    assert (
        wrap(PAGE, 30)
        == """\
# A heading that is longer than the width stays in one line

A paragraph in two lines, that
`has code` in it, and a
[link](to/a/page.md) too.

- An item that goes on,
  indented as it was.
- Another - with a dash.

10. The tenth, with an indent
    of four.

| a | table that is longer than the width stays as it is |
| --- | --- |
```
code that is longer than the width stays as it is
```

    indented code that is longer than the width
![a picture that is longer than the width](a.svg)
<!-- a comment that is longer than the width -->
"""
    )


@pytest.mark.parametrize("width", [10, 30, 60, 110])
def test_what_is_wrapped_stays_as_it_is(width: int) -> None:
    assert wrap(wrap(PAGE, width), width) == wrap(PAGE, width)


@pytest.mark.parametrize("word", ["-", "+", "#", "|"])
def test_no_line_begins_with_what_would_be_no_prose(word: str) -> None:
    assert wrap(f"some paragraph {word} of words\n", 14) == f"some\nparagraph {word} of\nwords\n"


def test_files_are_wrapped_in_place(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("word " * 40 + "\n")
    main([str(page)])
    assert [len(line) for line in page.read_text().splitlines()] == [109, 89]


def test_code_that_goes_on_in_an_items_next_line_keeps_one_blank() -> None:
    """The line's indentation went into the code."""
    assert wrap("- Run `make\n  test` now.", 40) == "- Run `make test` now."
