"""Pages that people write and commands fill: tables between two marks."""

from __future__ import annotations

BEGIN, END = "<!-- measured -->", "<!-- end of measured -->"


def with_tables(page: str, tables: str) -> str:
    """Return `page` with `tables` between its two marks, in the place of what stood there.

    Raises ValueError if the page has no marks.
    """
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page needs the lines {BEGIN} and {END}, between which the tables go")
    return f"{before}{BEGIN}\n{tables}\n{END}{after}"
