"""Texts that only who knows the secret can read or make."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

pytest.importorskip("cryptography")

from hypothesis import given, settings
from hypothesis import strategies as st

from hostlib import ConfigError, RendezvousError
from hostlib.launch.launched_rank import LaunchedRank
from hostlib.launch.machines import RankArrival, RankChannel, by_machine, launched, meet
from hostlib.launch.sealed import seal, unseal
from hostlib.settings import Settings

SECRET = "known to all ranks, and to no others"


@settings(deadline=None)
@given(st.text(), st.text(min_size=1))
def test_what_is_sealed_comes_out_as_it_was(text: str, secret: str) -> None:
    sealed = seal(text, secret)
    assert unseal(sealed, secret) == text
    assert sealed != seal(text, secret), "each has a nonce of its own"


@settings(deadline=None)
@given(st.text(), st.integers(0), st.integers(1, 15))
def test_what_was_changed_or_sealed_with_another_secret_is_refused(text: str, at: int, by: int) -> None:
    sealed = seal(text, SECRET)
    at %= len(sealed)
    changed = f"{sealed[:at]}{int(sealed[at], 16) ^ by:x}{sealed[at + 1 :]}"
    for wrong in (changed, sealed[:-2], sealed[2:], sealed[:24], sealed[:10], f"{sealed}00", "", "zz"):
        with pytest.raises(RendezvousError, match="another INA_TOKEN"):
            unseal(wrong, SECRET)
    with pytest.raises(RendezvousError, match="another INA_TOKEN"):
        unseal(sealed, f"{SECRET}.")


def test_nothing_of_a_text_shows() -> None:
    assert b"token".hex() not in seal("token" * 20, SECRET)


def test_a_nonce_is_never_used_twice_under_a_key() -> None:
    nonces = {seal("", SECRET)[:24] for _ in range(2000)}
    assert len(nonces) == 2000


def test_a_sealed_text_is_aes_256_gcm_under_a_key_by_hkdf() -> None:
    """Held to the package directly: another program could read it."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDF

    key = HKDF(SHA256(), 32, salt=None, info=b"ina sealed 1").derive(SECRET.encode())
    raw = bytes.fromhex(seal("the text", SECRET))
    assert AESGCM(key).decrypt(raw[:12], raw[12:], b"ina sealed 1") == b"the text"


WITHOUT = """
import sys
sys.modules["cryptography"] = None
import hostlib
hostlib.init()
assert hostlib.size() == 1
from hostlib.launch.machines import launched
from hostlib.launch.launched_rank import LaunchedRank
from hostlib.settings import Settings
launched(LaunchedRank("mpirun", 0, 2, 0, 1, "4711"), Settings.from_environment())
"""


def test_without_cryptography_a_job_on_several_machines_says_what_to_install_and_others_work() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], env={**os.environ, **RIGHT}, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "jobs on several machines need the package cryptography" in done.stderr
    assert "pip install 'ina[machines]' on all of them" in done.stderr


def free_address() -> tuple[str, int]:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        found: tuple[str, int] = probe.getsockname()
        return found


@contextlib.contextmanager
def second_meets() -> Iterator[tuple[RankChannel, Future[Any]]]:
    """Have a second rank meet a first one, whose channel this yields, with what will come of the second."""
    address = free_address()
    with (
        contextlib.closing(RankChannel(0, 2, address, SECRET, 60)) as first,
        ThreadPoolExecutor(1) as threads,
    ):

        def second() -> None:
            with contextlib.closing(RankChannel(1, 2, address, SECRET, 60)) as channel:
                own = RankArrival.here()
                channel.gather(own.to_text())
                meet(channel, 1, own, [], None, Settings.from_environment(RIGHT))

        yield first, threads.submit(second)


def test_an_answer_of_an_earlier_launch_is_refused() -> None:
    recorded = seal(json.dumps({"challenges": ["0" * 32, "1" * 32], "configs": [{}, {}]}), SECRET)
    with second_meets() as (first, met):
        first.gather(RankArrival.here().to_text())
        first.spread(recorded)
        with pytest.raises(RendezvousError, match="rank 1: the first rank's message answers another launch"):
            met.result()


def test_a_first_rank_that_cannot_seal_ends_the_others_wait() -> None:
    unset = Settings.from_environment(RIGHT | {"INA_TOKEN": ""})
    with second_meets() as (first, met):
        own = RankArrival.here()
        arrivals = [RankArrival.from_text(text) for text in first.gather(own.to_text())]
        with pytest.raises(ConfigError, match="INA_TOKEN has 0 characters"):
            meet(first, 0, own, arrivals, "127.0.0.1", unset)
        with pytest.raises(RendezvousError, match="rank 0 cannot seal its message"):
            met.result()


@pytest.mark.parametrize("text", ["", "a machine", "[]", '["a", "b", "c"]', "3"])
def test_what_is_no_arrival_is_refused(text: str) -> None:
    with pytest.raises(RendezvousError, match="must be its machine and a challenge"):
        RankArrival.from_text(text)


def test_machines_are_in_the_order_of_their_first_ranks() -> None:
    assert by_machine(["b", "a", "b", "c", "a"]) == [[0, 2], [1, 4], [3]]


RIGHT = {"INA_SWITCH": "grpc://10.1.0.9:9559", "INA_TOKEN": SECRET, "INA_MEETING": "10.255.255.1:1"}


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"INA_SWITCH": ""}, "neither INA_CLUSTER, INA_CONTROLLER nor INA_SWITCH is set"),
        ({"INA_TOKEN": "short"}, "INA_TOKEN has 5 characters: it must be a secret of 16 or more"),
        ({"INA_MEETING": ""}, "mpirun has put 1 of 2 ranks on this machine, and INA_MEETING is not set"),
        ({"INA_MEETING": "here"}, "INA_MEETING: 'here' is not an address"),
        ({}, r"INA_MEETING: cannot listen at 10\.255\.255\.1:1"),
        ({"INA_HIERARCHICAL": "yes"}, "INA_HIERARCHICAL is 'yes', must be 0 or 1"),
    ],
)
def test_what_several_machines_need_is_named(variables: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        launched(LaunchedRank("mpirun", 0, 2, 0, 1, "4711"), Settings.from_environment(RIGHT | variables))
