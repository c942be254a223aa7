"""Those who ask the controller that is measured: ten thousand submitters, and pages in browsers."""

from __future__ import annotations

import asyncio
import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import httpx

SENDERS = 16
EVERY_S = 5.0
"""At which a page asks again what changes without a decision, as `page.js` does."""
ALL_EVERY = 12


@dataclass(frozen=True, slots=True)
class Storm:
    """What became of submissions at once.

    Attributes:
        submitted: Their number.
        accepted: Those that are jobs now.
        refused: Those that were refused, with a reason.
        lost: Those that got no answer, no reason, or were accepted and are not there.
        took_s: Until the last answer.
        reasons: The refusals by status code.
    """

    submitted: int
    accepted: int
    refused: int
    lost: int
    took_s: float
    reasons: Mapping[str, int] = field(default_factory=dict)


def storm(url: str, jobs: Sequence[Mapping[str, Any]], senders: int = SENDERS) -> Storm:
    """Submit jobs, each in a request of its own, over some connections at once; look for them afterwards."""
    address = urlsplit(url).netloc
    answers: dict[str, int] = {}
    without_reason: set[str] = set()

    def send(part: Sequence[Mapping[str, Any]]) -> None:
        connection = http.client.HTTPConnection(address, timeout=60)
        for job in part:
            body = json.dumps({"jobs": [job]})
            try:
                connection.request("POST", "/v1/jobs", body, {"Content-Type": "application/json"})
                answer = connection.getresponse()
                text = answer.read()
            except OSError:
                connection.close()
                continue
            answers[job["name"]] = answer.status
            if answer.status >= 400 and not json.loads(text).get("detail"):
                without_reason.add(job["name"])
        connection.close()

    threads = [threading.Thread(target=send, args=(jobs[number::senders],)) for number in range(senders)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took_s = time.perf_counter() - begin
    there = _names(url)
    accepted = {name for name, status in answers.items() if status == 201}
    refused = {name for name, status in answers.items() if status >= 400} - without_reason
    kept = len(accepted & there)
    reasons = Counter(str(answers[name]) for name in refused)
    return Storm(len(jobs), kept, len(refused), len(jobs) - kept - len(refused), took_s, dict(reasons))


def _names(url: str) -> set[str]:
    found: set[str] = set()
    after: int | None = 0
    with httpx.Client(base_url=url, timeout=60, trust_env=False) as client:
        while after is not None:
            page = client.get("/v1/jobs", params={"after": after}).json()
            found.update(job["name"] for job in page["jobs"])
            after = page["next"]
    return found


PROGRESS = ("/v1/cluster", "/v1/jobs?state=starting&state=running&state=stopping&after=0")
ALL = (*PROGRESS, "/v1/jobs?state=queued&limit=100", "/v1/jobs?after=-200", "/v1/memory")


async def pages(url: str, browsers: int, for_s: float) -> None:
    """Do what pages do that are open in browsers, for some time: follow the events, and ask again."""
    limits = httpx.Limits(max_connections=2 * browsers)
    async with httpx.AsyncClient(base_url=url, timeout=60, trust_env=False, limits=limits) as client:
        tasks = [asyncio.create_task(_page(client, number / browsers)) for number in range(browsers)]
        await asyncio.wait(tasks, timeout=for_s, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.done():
                task.result()  # one that failed
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _page(client: httpx.AsyncClient, phase: float) -> None:
    await asyncio.sleep(phase * EVERY_S)
    following = asyncio.create_task(_follow(client))
    try:
        for turn in count():
            if following.done():
                break
            await refresh(client, PROGRESS if turn % ALL_EVERY else ALL)
            await asyncio.sleep(EVERY_S)
        following.result()
    finally:
        following.cancel()


async def _follow(client: httpx.AsyncClient) -> None:
    async with client.stream("GET", "/v1/events", params={"follow": "true", "after": "-1"}) as answer:
        async for _ in answer.aiter_bytes():
            pass


async def refresh(client: httpx.AsyncClient, paths: Sequence[str]) -> None:
    """Ask what a page asks for when it is drawn again."""
    for path in paths:
        answer = await client.get(path)
        answer.raise_for_status()
