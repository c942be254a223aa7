"""What ranks wrote, in pieces: a file of bytes that may grow while it is read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from pathlib import Path

from ina.service.api.streams import event
from ina.service.views import LogView

MOST_BYTES = 1 << 16
"""Of one piece."""
POLL_S = 0.25


def piece(path: Path, offset: int, most: int = MOST_BYTES) -> LogView:
    """Return a piece of a file, from byte `offset` on; a negative one counts from the end.

    A character of several bytes is never cut; what is not UTF-8 is replaced. Nothing is there of a file that
    does not exist yet.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            begin = max(0, size + offset) if offset < 0 else min(offset, size)
            file.seek(begin)
            data = file.read(most)
    except FileNotFoundError:
        return {"offset": 0, "next": 0, "size": 0, "text": ""}
    whole = _whole(data) if begin + len(data) < size or len(data) == most else data
    text = whole.decode("utf-8", errors="replace")
    return {"offset": begin, "next": begin + len(whole), "size": size, "text": text}


def _whole(data: bytes) -> bytes:
    """Return the data without the beginning of a character at its end."""
    for back in range(1, min(4, len(data)) + 1):
        byte = data[-back]
        if byte & 0xC0 != 0x80:
            needs = 1 if byte < 0x80 else 2 if byte < 0xE0 else 3 if byte < 0xF0 else 4
            return data[:-back] if byte >= 0xC0 and needs > back and len(data) > back else data
    return data


async def following(
    path: Path, offset: int, over: Callable[[], bool], *, poll_s: float = POLL_S
) -> AsyncGenerator[bytes, None]:
    """Yield the pieces of a file as events, until the job is over and all has been read.

    Args:
        path: The file.
        offset: The byte to begin with.
        over: Whether nothing will be written any more.
        poll_s: Interval at which the file is looked at.
    """
    while True:
        ended = over()  # asked before the file is read: what is written last is read
        found = piece(path, offset)
        if found["next"] < offset:  # the file was begun anew
            offset = 0
            continue
        offset = found["next"]
        if found["text"]:
            yield event("log", found, offset)
        elif ended:
            yield event("end", {"next": offset})
            return
        else:
            await asyncio.sleep(poll_s)
