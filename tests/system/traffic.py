"""Ordinary traffic between namespaces, for as long as something else is going on."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import math
import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

from tests.softswitch.namespaces import Namespace

TCP_BYTES = 256 << 10
PATIENCE_S = 0.2
GRACE_S = 60.0
"""How much longer than all else traffic goes on of which nothing has come through yet."""
ECHO_REQUEST, ECHO_REPLY = 8, 0


@dataclass(frozen=True)
class Traffic:
    """How often each kind came through, once the traffic has ended."""

    pings: Future[int]
    datagrams: Future[int]
    transfers: Future[int]


def ping(a: Namespace, b: Namespace, done: threading.Event) -> int:
    """Echo requests, one at a time; counts the answers."""
    answers: list[int] = []
    with a.socket(socket.AF_INET, socket.SOCK_DGRAM, socket.IPPROTO_ICMP) as icmp:
        icmp.connect((b.ip, 0))
        icmp.settimeout(PATIENCE_S)
        for number in _numbers(done, answers):
            payload = os.urandom(900)
            icmp.send(struct.pack("!BBHHH", ECHO_REQUEST, 0, 0, 0, number) + payload)
            if _arrives(icmp, functools.partial(_answers, number, payload)):
                answers.append(number)
    return len(answers)


def datagrams(a: Namespace, b: Namespace, done: threading.Event) -> int:
    """Datagrams of any content from `a` to `b`, one at a time; counts those that arrived."""
    arrived: list[int] = []
    with (
        a.socket(socket.AF_INET, socket.SOCK_DGRAM) as sender,
        b.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver,
    ):
        receiver.bind((b.ip, 7000))
        receiver.settimeout(PATIENCE_S)
        for number in _numbers(done, arrived):
            sent = os.urandom(1000)
            sender.sendto(sent, (b.ip, 7000))
            if _arrives(receiver, sent.__eq__):
                arrived.append(number)
    return len(arrived)


def _answers(number: int, payload: bytes, reply: bytes) -> bool:
    kind, _, _, _, answered = struct.unpack("!BBHHH", reply[:8])
    return (kind, answered, reply[8:]) == (ECHO_REPLY, number, payload)


def _numbers(done: threading.Event, came: Sequence[int]) -> Iterator[int]:
    """Yield numbers until all else is done and something has come through, or will not."""
    give_up_s = math.inf
    for number in itertools.count():
        if done.is_set():
            give_up_s = min(give_up_s, time.monotonic() + GRACE_S)
            if came or time.monotonic() > give_up_s:
                return
        yield number % 65536


def _arrives(at: socket.socket, is_it: Callable[[bytes], bool]) -> bool:
    """Read until it comes: what came before was late."""
    try:
        while not is_it(at.recv(2000)):
            pass
    except TimeoutError:
        return False
    return True


def transfers(a: Namespace, b: Namespace, done: threading.Event) -> int:
    """TCP transfers from `a` to `b`, one after the other, each checked by its digest; counts them."""
    count = 0
    with b.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.bind((b.ip, 7001))
        listener.listen()
        while not (done.is_set() and count):
            data = os.urandom(TCP_BYTES)
            with a.socket(socket.AF_INET, socket.SOCK_STREAM) as client:
                client.connect((b.ip, 7001))
                server, _ = listener.accept()
                with server, ThreadPoolExecutor(1) as threads:
                    server.settimeout(600)
                    digest = threads.submit(_digest, server)
                    client.sendall(data)
                    client.shutdown(socket.SHUT_WR)
                    assert digest.result() == hashlib.sha256(data).hexdigest()
            count += 1
    return count


def _digest(stream: socket.socket) -> str:
    digest = hashlib.sha256()
    while block := stream.recv(1 << 20):
        digest.update(block)
    return digest.hexdigest()


@contextlib.contextmanager
def between(hosts: list[Namespace]) -> Iterator[Traffic]:
    """Keep up a ping, datagrams and a TCP transfer between three hosts while the block runs."""
    first, second, third = hosts
    done = threading.Event()
    with ThreadPoolExecutor(3) as threads:
        try:
            yield Traffic(
                pings=threads.submit(ping, first, second, done),
                datagrams=threads.submit(datagrams, second, third, done),
                transfers=threads.submit(transfers, third, first, done),
            )
        finally:
            done.set()
