"""Server-sent events and shared answers: nothing is missed, and who takes nothing holds nothing."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncGenerator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from ina.api import streams
from ina.api.history import FRESH_S, MOST, Shared
from ina.api.problems import Problem
from ina.run.client import Client
from ina.run.tokens import Person, Role
from tests.ina.run.bed import Bed, job


@contextlib.contextmanager
def events(http: httpx.Client, path: str, last: int | None = None) -> Iterator[Iterator[dict[str, Any]]]:
    headers = {} if last is None else {"Last-Event-ID": str(last)}
    with http.stream("GET", path, headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield (json.loads(line[6:]) for line in answer.iter_lines() if line.startswith("data: "))


def test_events_come_from_the_beginning_and_as_they_happen(bed: Bed, http: httpx.Client) -> None:
    http.post("/v1/jobs", json={"jobs": [job("a")]})
    before = http.get("/v1/events").json()["events"]
    with events(http, "/v1/events?follow=true") as stream:
        assert [next(stream) for _ in before] == before
        httpx.post(f"{bed.url}/v1/jobs", json={"jobs": [job("b")]}, trust_env=False)
        assert next(stream)["jobs"] == ["b"]


def test_a_reader_goes_on_after_the_last_event_it_had(http: httpx.Client) -> None:
    http.post("/v1/jobs", json={"jobs": [job("a"), job("b")]})
    with events(http, "/v1/events?follow=true", last=3) as stream:
        assert next(stream)["number"] == 4


def test_a_log_is_followed_to_its_end(bed: Bed, http: httpx.Client) -> None:
    http.post("/v1/jobs", json={"jobs": [job("a")]})
    path = bed.log("a")
    path.write_text("first\n")
    with Client(bed.url) as client:
        text = client.follow_log("a", 0)
        assert next(text) == "first\n"
        with path.open("a") as file:
            file.write("second\n")
        assert next(text) == "second\n"
        path.write_text("first\nsecond\nlast\n")
        bed.advance(1000)
        assert list(text) == ["last\n"]


def test_the_open_streams_are_counted_and_limited(
    bed: Bed, http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    http.post("/v1/jobs", json={"jobs": [job("a")]})
    with events(http, "/v1/events?follow=true") as stream:
        next(stream)
        metrics = httpx.get(f"{bed.url}/metrics", trust_env=False).text
        assert "\nina_controller_http_streams 1\n" in metrics
    found = streams.Streams(most=1)
    with found.one(), pytest.raises(Problem, match="1 streams are open, and no more"):
        streams.EventStream(_nothing(), found)


async def _nothing() -> AsyncGenerator[bytes, None]:
    yield b""


class Reader:
    """An ASGI server's side of a stream, whose reader takes so many pieces."""

    def __init__(self, takes: int) -> None:
        self.left = asyncio.Event()
        self.pieces: list[bytes] = []
        self._takes = takes

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.body":
            if len(self.pieces) >= self._takes:
                await asyncio.Event().wait()
            self.pieces.append(message["body"])

    async def receive(self) -> Any:
        await self.left.wait()
        return {"type": "http.disconnect"}


def test_a_reader_who_takes_nothing_has_one_event_made_and_is_left() -> None:
    made = 0

    async def endless() -> AsyncGenerator[bytes, None]:
        nonlocal made
        try:
            while True:
                made += 1
                yield b"x" * 1000
        finally:
            made = -made

    async def run() -> None:
        reader, found = Reader(takes=3), streams.Streams()
        stream = streams.EventStream(endless(), found, slow_s=0.01)
        async with asyncio.timeout(10):
            await stream({}, reader.receive, reader.send)
        assert len(reader.pieces) == 3
        assert found.open == 0

    asyncio.run(run())
    assert made == -4, "one more than was taken, and the generator has ended"


def test_a_stream_ends_when_its_reader_has_gone_and_beats_while_nothing_happens() -> None:
    async def silent() -> AsyncGenerator[bytes, None]:
        await asyncio.Event().wait()
        yield b""

    async def run() -> None:
        reader = Reader(takes=1000)
        stream = streams.EventStream(silent(), streams.Streams(), beat_s=0.001)
        async with asyncio.timeout(10):
            task = asyncio.create_task(stream({}, reader.receive, reader.send))
            while len(reader.pieces) < 3:
                await asyncio.sleep(0.001)
            reader.left.set()
            await task
        assert set(reader.pieces) == {b": \n\n"}

    asyncio.run(run())


def test_an_error_in_what_is_streamed_is_not_swallowed() -> None:
    async def failing() -> AsyncGenerator[bytes, None]:
        yield b"data: 1\n\n"
        raise RuntimeError("the disk is gone")

    async def run() -> None:
        reader = Reader(takes=1000)
        await streams.EventStream(failing(), streams.Streams())({}, reader.receive, reader.send)

    with pytest.raises(RuntimeError, match="the disk is gone"):
        asyncio.run(run())


def test_a_reader_over_a_socket_who_takes_nothing_does_not_stop_others(bed: Bed, http: httpx.Client) -> None:
    http.post("/v1/jobs", json={"jobs": [job("a")]})
    bed.log("a").write_bytes(b"x" * 20_000_000)
    port = httpx.URL(bed.url).port
    with socket.create_connection(("127.0.0.1", port)) as peer:
        peer.sendall(b"GET /v1/jobs/a/logs/0?follow=true HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert peer.recv(100)
        assert http.get("/v1/jobs/a").status_code == 200
        assert "ina_controller_http_streams 1" in http.get("/metrics").text.splitlines()


# --------------------------------------------------------------------------- pieces of logs


@given(text=st.text(), most=st.integers(4, 12))
def test_pieces_of_a_log_make_the_whole_and_cut_no_character(
    tmp_path_factory: pytest.TempPathFactory, text: str, most: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "whole.log"
    path.write_bytes(text.encode("utf-8", "replace"))
    found, offset = "", 0
    while (piece := streams.piece(path, offset, most))["next"] > offset:
        found += piece["text"]
        offset = piece["next"]
    assert found == text.encode("utf-8", "replace").decode()
    assert offset == piece["size"]


@given(data=st.binary(), most=st.integers(4, 12))
def test_any_bytes_of_a_log_are_read_to_the_end(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, most: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.log"
    path.write_bytes(data)
    offset = 0
    for _ in range(len(data) + 1):
        offset = streams.piece(path, offset, most)["next"]
    assert offset == len(data)


def test_a_log_that_was_begun_anew_is_followed_from_its_begin(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text("a long first line\n")

    async def run() -> list[bytes]:
        over: list[bool] = []
        pieces = []
        async for piece in streams.following(path, 0, lambda: bool(over), poll_s=0.001):
            pieces.append(piece)
            if len(pieces) == 1:
                path.write_text("new\n")
            if len(pieces) == 2:
                over.append(True)
        return pieces

    pieces = asyncio.run(run())
    texts = [json.loads(piece.split(b"data: ")[1])["text"] for piece in pieces[:-1]]
    assert texts == ["a long first line\n", "new\n"]
    assert b"event: end" in pieces[-1]


ANN, BOB = Person("ann", Role.SUBMITTER), Person("bob", Role.SUBMITTER)


def asked(path: str = "/v1/jobs", query: str = "") -> Request:
    return Request(
        {
            "type": "http",
            "method": "GET",
            "path": path,
            "query_string": query.encode(),
            "headers": [],
            "server": ("h", 80),
        }
    )


def test_an_answer_is_shared_until_something_changes_or_time_has_passed() -> None:
    class Changing:
        changes = 0

    now_s, made = 100.0, count()
    service: Any = Changing()
    shared = Shared(service, clock_s=lambda: now_s)

    def answer(request: Request, person: Person = ANN) -> bytes:
        return bytes(shared.answer(request, person, lambda: next(made)).body)

    assert [answer(asked()), answer(asked())] == [b"0", b"0"]
    assert answer(asked(query="after=3")) == b"1"
    assert answer(asked("/v1/cluster")) == b"2"
    assert answer(asked(), BOB) == b"3", "it may not show the same to everybody"
    service.changes = 1
    assert answer(asked()) == b"4"
    now_s += FRESH_S
    assert answer(asked()) == b"5"
    for number in range(2 * MOST):
        answer(asked(query=f"after={number}"))
    assert len(shared._answers) <= MOST + 1
