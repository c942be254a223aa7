"""Server-sent events, sent only as fast as the client reads them, and pieces of the output of ranks."""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import json
from collections.abc import AsyncGenerator, Callable, Iterator
from pathlib import Path

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ina.api.problems import Problem
from ina.run.views import LogView

BEAT_S = 15.0
"""Time, in s, without an event after which an empty comment is sent, because proxies close silent
connections."""
SLOW_S = 30.0
"""Time, in s, after which a client that reads nothing is disconnected."""
MAX_STREAMS = 256


def event(kind: str, data: object, number: int | None = None) -> bytes:
    """Return a server-sent event as bytes.

    Args:
        kind: The event's type.
        data: The event's data, sent as JSON.
        number: The event's id. A client that sends it as ``Last-Event-ID`` continues after this event. None:
            the event has no id.
    """
    numbered = "" if number is None else f"id: {number}\n"
    return f"{numbered}event: {kind}\ndata: {json.dumps(data)}\n\n".encode()


class Streams:
    """Counts and limits the open streams."""

    def __init__(self, most: int = MAX_STREAMS) -> None:
        self.open = 0
        self._most = most

    @contextlib.contextmanager
    def one(self) -> Iterator[None]:
        """Count a stream as open while the context lasts."""
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1

    def check(self) -> None:
        """Raise Problem if the limit of open streams is reached."""
        if self.open >= self._most:
            raise Problem(
                503, f"{self.open} streams are open, and no more are allowed", headers={"Retry-After": "10"}
            )


class EventStream(Response):
    """A response that sends events until `events` ends or the client disconnects.

    Only one event at a time is in memory: the next event is requested once the previous one is sent.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        streams: Streams,
        *,
        beat_s: float = BEAT_S,
        slow_s: float = SLOW_S,
    ) -> None:
        streams.check()
        super().__init__(headers={"X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._streams = streams
        self._beat_s = beat_s
        self._slow_s = slow_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        with self._streams.one():
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            tasks = {asyncio.create_task(self._write(send)), asyncio.create_task(_left(receive))}
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)
                await self._events.aclose()
            for task in done:
                task.result()

    async def _write(self, send: Send) -> None:
        upcoming: asyncio.Task[bytes] | None = None
        try:
            while True:
                upcoming = upcoming or asyncio.create_task(_next(self._events))
                await asyncio.wait({upcoming}, timeout=self._beat_s)
                text = b": \n\n"
                if upcoming.done():
                    text, upcoming = upcoming.result(), None
                async with asyncio.timeout(self._slow_s):
                    await send({"type": "http.response.body", "body": text, "more_body": bool(text)})
                if not text:
                    return
        except TimeoutError:
            return  # the client is too slow: the connection ends
        finally:
            if upcoming is not None:
                upcoming.cancel()
                await asyncio.gather(upcoming, return_exceptions=True)


async def _next(events: AsyncGenerator[bytes, None]) -> bytes:
    """Return the next of `events`; b"" once they have ended."""
    return await anext(events, b"")


async def _left(receive: Receive) -> None:
    """Wait until the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


MOST_BYTES = 1 << 16
"""Maximum size of a piece of a rank's output, in bytes."""
POLL_S = 0.25


def piece(path: Path, offset: int, most: int = MOST_BYTES) -> LogView:
    """Return a piece of a file, of at most `most` bytes, from byte `offset` on.

    A negative offset counts from the end of the file. A character of several bytes is never cut; bytes that
    are not UTF-8 are replaced. A file that does not exist yet counts as empty.
    """
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            begin = max(0, size + offset) if offset < 0 else min(offset, size)
            file.seek(begin)
            data = file.read(most)
    except FileNotFoundError:
        return {"offset": 0, "next": 0, "size": 0, "text": ""}
    goes_on = begin + len(data) < size or len(data) == most
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    text = decoder.decode(data, final=not goes_on)
    cut, _ = decoder.getstate()  # the beginning of a character
    return {"offset": begin, "next": begin + len(data) - len(cut), "size": size, "text": text}


async def following(
    path: Path, offset: int, over: Callable[[], bool], *, poll_s: float = POLL_S
) -> AsyncGenerator[bytes, None]:
    """Yield pieces of a file with a job's output as events, until the job is over and all is read.

    If the file is found to be shorter than before, begin again at its start.

    Args:
        path: The file.
        offset: The first byte.
        over: Returns whether the job is over; the file is then complete.
        poll_s: Interval, in s, at which the file is read.
    """
    while True:
        ended = over()  # called before the file is read, so that the last output is not missed
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
