"""A switch tells its ports by gNMI, at the address of P4Runtime: OpenConfig's interfaces, read only."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from typing import Any

import grpc
import pytest

from controller.p4runtime_shim.ports import SwitchWatch
from p4src.messages import gnmi
from softswitch.engine.ports import MemoryPort, UdpPort
from softswitch.engine.switch import Switch
from softswitch.p4runtime import serve

ONCE, STREAM, POLL = (gnmi.SubscriptionList.Mode.Value(name) for name in ("ONCE", "STREAM", "POLL"))


class Client:
    """As any gNMI client, by the public messages alone."""

    def __init__(self, address: str) -> None:
        self._channel = grpc.insecure_channel(address)

    def close(self) -> None:
        self._channel.close()

    def call(self, method: str, request: Any, response: Any) -> Any:
        unary = self._channel.unary_unary(
            f"/gnmi.gNMI/{method}", type(request).SerializeToString, response.FromString
        )
        return unary(request, timeout=120)

    def get(self, *paths: str, encoding: str = "JSON", **more: Any) -> list[tuple[str, Any]]:
        request = gnmi.GetRequest(path=map(path, paths), encoding=gnmi.ENCODINGS[encoding], **more)
        return [
            found
            for each in self.call("Get", request, gnmi.GetResponse).notification
            for found in updates(each)
        ]

    def subscribe(self, *requests: Any) -> list[Any]:
        stream = self._channel.stream_stream(
            "/gnmi.gNMI/Subscribe",
            gnmi.SubscribeRequest.SerializeToString,
            gnmi.SubscribeResponse.FromString,
        )
        return list(stream(iter(requests), timeout=120))


def path(text: str) -> Any:
    """Read ``interfaces/interface[name=1]/state``."""
    found = gnmi.Path_()
    for part in filter(None, text.split("/")):
        name, _, keys = part.partition("[")
        pairs = [pair.rstrip("]").split("=") for pair in keys.split("[") if pair]
        found.elem.add(name=name, key=dict(pairs))
    return found


def updates(notification: Any) -> list[tuple[str, Any]]:
    found = []
    for update in notification.update:
        where = "/".join(
            elem.name + "".join(f"[{key}={value}]" for key, value in elem.key.items())
            for elem in update.path.elem
        )
        kind = update.val.WhichOneof("value")
        value = getattr(update.val, kind)
        found.append((where, json.loads(value) if kind.startswith("json") else value))
    return found


def subscription(text: str, mode: int = ONCE) -> Any:
    request = gnmi.SubscribeRequest()
    request.subscribe.mode = mode
    request.subscribe.subscription.add(path=path(text))
    request.subscribe.encoding = gnmi.ENCODINGS["PROTO"]
    return request


@pytest.fixture(scope="module")
def switch() -> Iterator[Switch]:
    with Switch({1: UdpPort(0, 28001), 2: UdpPort(), 7: MemoryPort()}) as switch:
        yield switch


@pytest.fixture(scope="module")
def client(switch: Switch) -> Iterator[Client]:
    with closing(serve(switch)) as service, closing(Client(service.address)) as client:
        yield client


def test_it_says_what_it_can(client: Client) -> None:
    told = client.call("Capabilities", gnmi.CapabilityRequest(), gnmi.CapabilityResponse)
    assert told.gNMI_version == "0.10.0"
    assert [model.name for model in told.supported_models] == [
        "openconfig-interfaces",
        "openconfig-p4rt",
        "openconfig-system",
        "ina-p4runtime",
    ]
    assert {gnmi.ENCODINGS[name] for name in ("JSON", "PROTO", "JSON_IETF")} == set(told.supported_encodings)


def test_a_port_is_told_with_its_address_state_and_counters(client: Client, switch: Switch) -> None:
    switch.inject(7, [bytes(64)] * 3)
    ((where, state),) = client.get("interfaces/interface[name=7]/state")
    assert where == "interfaces/interface[name=7]/state"
    assert (state["id"], state["oper-status"], state["description"]) == (7, "UP", "memory")
    assert (state["counters"]["in-pkts"], state["counters"]["in-octets"]) == (3, 192)
    assert state["counters"]["in-discards"] == 3, "no program is loaded"
    _, port = switch.port_address(1)
    ((_, description),) = client.get("interfaces/interface[name=1]/state/description")
    assert description == f"udp:127.0.0.1:{port} peer 127.0.0.1:28001"


@pytest.mark.parametrize(
    "text", ["interfaces/interface[name=*]/state/id", "interfaces/interface/state/id", ".../state/id"]
)
def test_wildcards_select_all_ports(client: Client, text: str) -> None:
    found = dict(client.get(text, encoding="PROTO"))
    assert found == {f"interfaces/interface[name={port}]/state/id": port for port in (1, 2, 7)}


def test_encodings_and_kinds_of_data(client: Client) -> None:
    ((_, plain),) = client.get("interfaces")
    assert [each["name"] for each in plain["interface"]] == ["1", "2", "7"]
    ((_, ietf),) = client.get("interfaces/interface[name=2]", encoding="JSON_IETF")
    assert ietf["openconfig-interfaces:name"] == "2"
    assert ietf["openconfig-interfaces:state"]["openconfig-p4rt:id"] == 2
    assert ietf["openconfig-interfaces:state"]["counters"]["in-pkts"] == "0", "64 bits are text there"
    ((_, config),) = client.get("interfaces/interface[name=2]", type=gnmi.GetRequest.CONFIG)
    assert config.keys() == {"name", "config"}
    leaves = dict(client.get("interfaces/interface[name=2]/config", encoding="PROTO"))
    assert leaves["interfaces/interface[name=2]/config/enabled"] is True


def test_subscriptions_once_and_polled(client: Client) -> None:
    one, sync = client.subscribe(subscription("interfaces/interface/state/oper-status"))
    assert [value for _, value in updates(one.update)] == ["UP"] * 3
    assert sync.sync_response
    poll = gnmi.SubscribeRequest(poll={})
    answers = client.subscribe(subscription("interfaces/interface[name=1]/name", POLL), poll, poll)
    assert [answer.WhichOneof("response") for answer in answers] == ["update", "sync_response"] * 3
    (nothing,) = client.subscribe(subscription("components"))
    assert nothing.sync_response, "what is not there has no updates, and is no error"


@pytest.mark.parametrize(
    ("does", "code", "said"),
    [
        (
            lambda client: client.get("interfaces/interface[name=9]"),
            "NOT_FOUND",
            "there is nothing at /interfaces/interface[name=9]",
        ),
        (
            lambda client: client.get("interfaces/interface[index=1]"),
            "INVALID_ARGUMENT",
            "interface has no key 'index'",
        ),
        (
            lambda client: client.get("interfaces", encoding="ASCII"),
            "UNIMPLEMENTED",
            "want JSON, PROTO, JSON_IETF",
        ),
        (
            lambda client: client.subscribe(subscription("interfaces", STREAM)),
            "UNIMPLEMENTED",
            "ONCE and POLL only",
        ),
        (
            lambda client: client.subscribe(gnmi.SubscribeRequest(poll={})),
            "INVALID_ARGUMENT",
            "want one list of subscriptions first",
        ),
        (
            lambda client: client.call("Set", gnmi.SetRequest(), gnmi.SetResponse),
            "UNIMPLEMENTED",
            "are set by --port when the switch starts",
        ),
    ],
)
def test_what_it_cannot_do_is_said(client: Client, does: Any, code: str, said: str) -> None:
    with pytest.raises(grpc.RpcError) as refused:
        does(client)
    error: Any = refused.value
    assert error.code().name == code
    assert said in error.details()


def test_a_switch_tells_when_it_was_started_and_how_often_it_was_written_to(switch: Switch) -> None:
    watch = SwitchWatch()
    with closing(serve(switch)) as service:
        first = watch(service.address)
        assert watch(service.address) is first, "an answer like the last one is not decoded"
        assert {port: each.up for port, each in first.ports.items()} == {1: True, 2: True, 7: True}
        with service.device.writing():
            pass
        switch.inject(7, [bytes(64)])
        second = watch(service.address)
        assert second.revision == replace(first.revision, writes=first.revision.writes + 1)
        assert (second.packets, first.packets) == ((first.packets or 0) + 1, first.packets)
    assert watch(service.address) is None
    with closing(serve(switch)) as again:
        third = watch(again.address)
        assert third.revision.booted_ns > first.revision.booted_ns


def test_boot_time_and_writes_in_ietf_json(client: Client) -> None:
    ((_, system),) = client.get("system", encoding="JSON_IETF")
    assert int(system["openconfig-system:state"]["boot-time"]) > 0
    ((_, state),) = client.get("p4runtime/state", encoding="JSON_IETF")
    assert state == {"ina-p4runtime:writes": "0"}
