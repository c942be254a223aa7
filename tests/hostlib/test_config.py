from __future__ import annotations

import json
from typing import Any

import pytest

from hostlib.config import DEFAULT_SLOTS, JobConfig, TransportConfig
from hostlib.errors import ConfigError

TRANSPORT = TransportConfig("loopback", "127.0.0.1:0", "127.0.0.1:9000", udp_port=42593)
CONFIG = JobConfig(job=3, rank=1, size=4, lanes=64, transport=TRANSPORT, rendezvous="127.0.0.1:1")


def test_json_carries_every_field() -> None:
    assert JobConfig.from_json(CONFIG.to_json()) == CONFIG
    assert JobConfig.from_environment({"INA_JOB": CONFIG.to_json()}) == CONFIG
    assert JobConfig.from_environment({}) is None


def test_defaults_may_be_left_out() -> None:
    transport = {"kind": "udp", "local": "10.0.0.1:42592", "switch": "10.0.0.254:42592"}
    text = json.dumps({"job": 1, "rank": 0, "size": 1, "lanes": 256, "transport": transport})
    config = JobConfig.from_json(text)
    assert (config.slots, config.timeout_s, config.straggler_timeout_s) == (DEFAULT_SLOTS, 8, 600)
    assert config.rendezvous is None


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
        ({"timeout_s": 0}, "timeout_s is 0"),
        ({"timeout_s": 700}, "straggler_timeout_s"),
        ({"ranks": 3}, "unknown ranks; known are job, rank"),
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


@pytest.mark.parametrize("text", ["", "{", "[]", "3"])
def test_what_is_no_configuration_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="INA_JOB"):
        JobConfig.from_json(text)
