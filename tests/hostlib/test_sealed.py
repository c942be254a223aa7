"""Texts that only who knows the secret can read or make."""

from __future__ import annotations

import contextlib
import json
import socket
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hostlib import ConfigError, RendezvousError
from hostlib.machines import TcpChannel, by_machine, launched
from hostlib.placement import Placement
from hostlib.sealed import proof, seal, unseal
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
    for wrong in (changed, sealed[:-2], "", "zz"):
        with pytest.raises(RendezvousError, match="another INA_TOKEN"):
            unseal(wrong, SECRET)
    with pytest.raises(RendezvousError, match="another INA_TOKEN"):
        unseal(sealed, f"{SECRET}.")


def test_nothing_of_a_text_shows() -> None:
    assert b"token".hex() not in seal("token" * 20, SECRET)


def test_machines_are_in_the_order_of_their_first_ranks() -> None:
    assert by_machine(["b", "a", "b", "c", "a"]) == [[0, 2], [1, 4], [3]]


def test_a_channel_gathers_and_spreads_whoever_else_connects() -> None:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        address = probe.getsockname()
    first = TcpChannel(0, 3, address, SECRET)
    strangers = [socket.create_connection(address) for _ in range(5)]
    said = json.dumps([1, 3, "forged"])
    strangers[0].sendall(json.dumps([said, proof(said, "another")]).encode() + b"\n")
    strangers[1].sendall(b"[1,\n")
    said = json.dumps([1, 4, "of a job of four"])
    strangers[2].sendall(json.dumps([said, proof(said, SECRET)]).encode() + b"\n")

    def other(rank: int) -> tuple[list[str], str]:
        with contextlib.closing(TcpChannel(rank, 3, address, SECRET)) as channel:
            return list(channel.gather(f"rank {rank}")), channel.spread("")

    with ThreadPoolExecutor() as threads:
        others = [threads.submit(other, rank) for rank in (1, 2)]
        assert first.gather("rank 0") == ["rank 0", "rank 1", "rank 2"]
        assert first.spread("all") == "all"
        assert [each.result() for each in others] == [([], "all")] * 2
    first.close()
    for stranger in strangers[:3]:
        stranger.settimeout(10)
        assert stranger.recv(10) == b""
    for stranger in strangers:
        stranger.close()


RIGHT = {"INA_SWITCH": "grpc://10.1.0.9:9559", "INA_TOKEN": SECRET, "INA_MEETING": "10.255.255.1:1"}


@pytest.mark.parametrize(
    ("variables", "text"),
    [
        ({"INA_SWITCH": ""}, "the ranks are on several machines, and INA_SWITCH is not set"),
        ({"INA_TOKEN": "short"}, "INA_TOKEN has 5 characters: it must be a secret of 16 or more"),
        ({"INA_MEETING": ""}, "mpirun has put 1 of 2 ranks on this machine, and INA_MEETING is not set"),
        ({"INA_MEETING": "here"}, "INA_MEETING: 'here' is not an address"),
        ({}, r"INA_MEETING: cannot listen at 10\.255\.255\.1:1"),
        ({"INA_HIERARCHICAL": "yes"}, "INA_HIERARCHICAL is 'yes', must be 0 or 1"),
    ],
)
def test_what_several_machines_need_is_named(variables: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        launched(Placement("mpirun", 0, 2, 0, 1, "4711"), Settings.from_environment(RIGHT | variables))
