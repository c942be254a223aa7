from __future__ import annotations

import copy
import dataclasses
import json
import pickle
import traceback
from typing import Any

import pytest

from hostlib import errors
from hostlib.config import DEFAULT_SLOTS, JobConfig, TransportConfig
from hostlib.errors import NO_PACKETS, ConfigError, InaError, PsnRange
from hostlib.meet.connections import MissingRanks
from hostlib.wire.tree import Tree

TRANSPORT = TransportConfig("loopback", "127.0.0.1:0", "127.0.0.1:9000", udp_port=42593)
SECRET = "5ec7e7"
CONFIG = JobConfig(
    job=3, rank=1, size=4, lanes=64, transport=TRANSPORT, rendezvous="127.0.0.1:1", token=SECRET
)

SHARED = dataclasses.replace(
    CONFIG,
    tree=Tree({0: (-4, 2), 4: (3, 1, 0)}),
    slots=0,
    epoch=255,
    window=48,
    fallback=True,
    congestion="a2tp",
    numbers="fixed",
    scale_bits=12,
    priority=9,
)


ATP = dataclasses.replace(SHARED, atp=True)


@pytest.mark.parametrize("config", [CONFIG, SHARED, ATP])
def test_json_carries_every_field(config: JobConfig) -> None:
    assert JobConfig.from_json(config.to_json()) == config
    assert JobConfig.from_environment({"INA_JOB": config.to_json()}) == config


def test_no_environment_is_no_configuration() -> None:
    assert JobConfig.from_environment({}) is None


def test_defaults_may_be_left_out() -> None:
    transport = {"kind": "udp", "local": "10.0.0.1:42592", "switch": "10.0.0.254:42592"}
    text = json.dumps({"job": 1, "rank": 0, "size": 1, "lanes": 256, "transport": transport, "protocol": 4})
    config = JobConfig.from_json(text)
    assert (config.slots, config.timeout_s, config.straggler_timeout_s) == (DEFAULT_SLOTS, 8, 600)
    assert config.rendezvous is None
    assert (config.tree, config.epoch, config.fallback, config.priority) == (None, 0, False, None)
    assert (config.congestion, config.numbers, config.scale_bits) == ("fixed", "exponent", 20)


@pytest.mark.parametrize(
    ("fields", "packets"),
    [
        ({}, DEFAULT_SLOTS // 2),
        ({"slots": 64}, 32),
        ({"slots": 64, "window": 16}, 16),
        ({"slots": 64, "window": 500, "fallback": True}, 500),
        ({"slots": 65, "fallback": True}, 32),
        ({"slots": 0, "fallback": True}, DEFAULT_SLOTS // 2),
    ],
)
def test_the_window_is_half_of_the_memory_unless_told(fields: dict[str, Any], packets: int) -> None:
    assert dataclasses.replace(CONFIG, **fields).window_packets == packets


def test_a_tree_may_have_more_ranks_than_a_bitmap_has_bits() -> None:
    tree = Tree.of({0: [-1, -2], 1: range(20), 2: range(20, 40)})
    assert dataclasses.replace(CONFIG, size=40, rank=39, tree=tree).size == 40


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rank": 4}, r"rank is 4, must be 0\.\.3"),
        ({"rank": "0"}, "wrong type"),
        ({"size": 33}, r"size is 33, must be 1\.\.32"),
        ({"job": 65536}, "job is 65536"),
        ({"lanes": 100}, r"lanes is 100, must be one of \(32, 64, 256\)"),
        ({"slots": 7}, "slots is 7, must be even"),
        ({"slots": 0}, "slots is 0"),
        ({"slots": -1, "fallback": True}, "slots is -1, must not be negative"),
        ({"slots": 64, "window": 33}, r"window is 33, must be at most half of slots \(64\)"),
        ({"window": 0, "fallback": True}, r"window is 0, must be 1\.\.524288"),
        ({"window": 600_000, "fallback": True}, "window is 600000"),
        ({"fallback": 1}, "fallback is 1, must be true or false"),
        ({"atp": "yes", "fallback": True}, "atp is 'yes', must be true or false"),
        ({"bare": "yes"}, "bare is 'yes', must be true or false"),
        ({"atp": True}, "atp is true, fallback is false: ATP needs a fallback server"),
        ({"epoch": 256}, r"epoch is 256, must be 0\.\.255"),
        (
            {"congestion": "cubic"},
            r"congestion is 'cubic', must be one of \('fixed', 'aimd', 'a2tp', 'tcp'\)",
        ),
        ({"congestion": "a2tp"}, "needs a fallback server"),
        (
            {"numbers": "posit"},
            r"numbers is 'posit', must be one of \('exponent', 'block16', 'block8', 'block4', 'fixed'",
        ),
        (
            {"size": 8, "numbers": "block4"},
            "numbers: block4 has room for the sum of at most 7 ranks, and there are 8",
        ),
        ({"scale_bits": 31}, r"scale_bits is 31, must be 0\.\.30"),
        ({"priority": 256}, r"priority is 256, must be 0\.\.255"),
        ({"priority": "high"}, "wrong type"),
        ({"tree": [0, 1]}, "tree is"),
        ({"tree": {"0": [0, 1]}}, "size is 4, but the tree has 2 ranks"),
        ({"tree": {"0": [0, 1, -5]}}, "node 5"),
        ({"token": None}, "token is missing"),
        ({"token": 7}, "token is of type int, must be a text"),
        ({"timeout_s": 0}, "timeout_s is 0"),
        ({"timeout_s": 700}, "straggler_timeout_s"),
        ({"protocol": 5}, "INA_JOB: it speaks protocol 5, this end 4: install the same ina at both"),
        ({"ranks": 3}, "unknown fields ranks; known are job, rank"),
        ({"transport": None}, 'an object "transport"'),
        ({"transport": {"kind": "udp"}}, "local, switch is missing"),
        ({"transport": {"kind": "tcp", "local": "a:1", "switch": "b:2"}}, "'tcp', must be"),
        ({"transport": {"kind": "udp", "local": "a", "switch": "b:2"}}, "'a' is not an address"),
        ({"transport": {"kind": "udp", "local": "a:1", "switch": "b:70000"}}, "'b:70000' is not"),
        ({"transport": {"kind": "udp", "local": "a:1", "switch": "b:2", "src_mac": "x"}}, "transport: "),
        ({"transport": {"kind": "udp", "local": "a:1", "switch": "b:2", "src_ip": "1.2.3"}}, "transport: "),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], message: str) -> None:
    fields = json.loads(CONFIG.to_json()) | change
    with pytest.raises(ConfigError, match=message):
        JobConfig.from_json(json.dumps(fields))


def test_the_token_is_shown_by_no_error_and_no_repr() -> None:
    text = CONFIG.to_json()
    assert SECRET in text
    assert SECRET not in repr(CONFIG)
    fields = json.loads(text)
    for wrong in (
        text[:-1],
        json.dumps([text]),
        json.dumps(fields | {"token": [SECRET]}),
        json.dumps(fields | {"rank": "0"}),
        json.dumps(fields | {"tokens": SECRET}),
        json.dumps({"token": SECRET, "transport": {}}),
    ):
        with pytest.raises(ConfigError) as caught:
            JobConfig.from_json(wrong)
        assert SECRET not in "".join(traceback.format_exception(caught.value, chain=True))
        assert not hasattr(caught.value.__cause__, "doc")


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"transport": {}}'])
def test_what_is_no_configuration_is_refused(text: str) -> None:
    with pytest.raises(
        ConfigError,
        match=r"INA_JOB(:| is| must be) (it speaks protocol 1, this end 4: install|not JSON|a JSON object)",
    ):
        JobConfig.from_json(text)


ERRORS = (
    errors.ConfigError("no such job"),
    errors.NativeMissing("not compiled"),
    errors.RendezvousError("nobody is there"),
    errors.UnsupportedArray("float8"),
    errors.NonFiniteError(7, 256),
    errors.SumOverflow(7, PsnRange(1, 2), 512, "is too large"),
    errors.NotInitialized("call init() first"),
    errors.RanksDisagree("call 1 is a sum", job=7, psns=PsnRange(1, 2), missing=[3]),
    errors.PeerTimeout("nothing for 30 s", job=7, psns=NO_PACKETS),
    errors.PeerLost({3: "it ended with status 9"}, job=7, psns=PsnRange(1, 2)),
    errors.JobFault("the switch is gone", job=7, psns=NO_PACKETS),
    errors.Interrupted("KeyboardInterrupt", job=7, psns=NO_PACKETS),
    MissingRanks([1, 2], 4, 30.0),
)


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_is_the_same_after_pickle(error: InaError) -> None:
    for found in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(found) is type(error)
        assert str(found) == str(error)
        assert found.args == error.args
        assert vars(found) == vars(error)


def test_each_public_error_is_tried() -> None:
    named = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, InaError)}
    assert named - {type(error) for error in ERRORS} == {InaError, errors.JobBroken}
