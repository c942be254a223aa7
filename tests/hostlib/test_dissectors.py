"""What reads captures: the scapy layer, and the Lua dissector, read by tshark where there is one."""

from __future__ import annotations

import re
import shutil
import struct
import subprocess
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from hostlib import wire
from hostlib.wire.lua_dissector import dissector
from tests.hostlib.virtual_network import endpoints

WITHOUT_LANES = (wire.KIND_STATUS, wire.KIND_REMINDER)
FIELDS = [name for name in wire.HEADER_DTYPE.names or () if name != "version_kind"]


def packet(kind: int, lanes: int, number: int) -> NDArray[Any]:
    """A whole frame; every field differs from packet to packet."""
    lanes = 0 if kind in WITHOUT_LANES else lanes
    made = np.zeros(1, wire.packet_dtype(lanes, framed=True))
    prefix = wire.frame_prefix(endpoints(3), wire.INA_BYTES + 4 * lanes)
    made.view(np.uint8)[: len(prefix)] = np.frombuffer(prefix, np.uint8)
    made["version_kind"] = wire.version_kind(kind)
    for position, name in enumerate(FIELDS):
        made[name] = (number * 0x9E3779B1 + position * 0x01030507) % 2 ** (8 * made[name].itemsize)
    made["flags"] &= ~wire.FLAG_RAW & 0xFF
    made["lanes"] = lanes
    made["values"] = (np.arange(lanes) * 0x0102030405) % 2**32 - 2**31
    return made


EVERY = [
    packet(kind, lanes, 1 + number)
    for number, (kind, lanes) in enumerate(product(wire.NAMES_OF_KINDS, wire.LANE_COUNTS))
]


def raw(*, int32: bool) -> NDArray[Any]:
    made = packet(wire.KIND_PARTIAL, 32, 77)
    made["flags"] = wire.FLAG_RAW
    made["valid"] = 32 | (wire.VALID_INT32 if int32 else 0)
    if not int32:
        made["values"][0] = (np.arange(32, dtype=np.float32) / 4).view(np.int32)
    return made


def names_of(flags: int) -> list[str]:
    return [name for bit, name in wire.NAMES_OF_FLAGS.items() if flags & bit]


# ------------------------------------------------------------------ scapy


@pytest.mark.parametrize("sent", EVERY, ids=lambda sent: f"{sent['version_kind'][0] & 15}-{sent['lanes'][0]}")
def test_scapy_shows_every_field_of_every_kind(sent: NDArray[Any]) -> None:
    from scapy.layers.l2 import Ether

    from hostlib.scapy_ina import Ina

    ina = Ether(sent.tobytes())[Ina]
    assert ina.sprintf("%Ina.kind%") == wire.NAMES_OF_KINDS[sent["version_kind"][0] & 15]
    assert str(ina.flags).split("+") == (names_of(sent["flags"][0]) or [""])
    assert {name: int(getattr(ina, name)) for name in FIELDS} == {name: int(sent[name][0]) for name in FIELDS}
    assert ina.values == sent["values"][0].tolist()
    assert bytes(ina) == sent.tobytes()[wire.FRAME_PREFIX_BYTES :]


def test_scapy_finds_addresses_lengths_and_the_checksum_of_a_frame_right() -> None:
    from scapy.layers.inet import IP, UDP
    from scapy.layers.l2 import Ether

    frame = Ether(EVERY[0].tobytes())
    assert (frame[IP].src, frame[IP].len) == ("10.0.0.4", len(EVERY[0].tobytes()) - 14)
    assert (frame[UDP].sport, frame[UDP].dport) == (42592, 42592)
    checksum = frame[IP].chksum
    del frame[IP].chksum
    assert Ether(bytes(frame))[IP].chksum == checksum


def test_scapy_shows_raw_lanes_as_what_they_are() -> None:
    from scapy.layers.l2 import Ether

    from hostlib.scapy_ina import Ina

    floats = Ether(raw(int32=False).tobytes())[Ina]
    assert floats.floats == [number / 4 for number in range(32)]
    assert bytes(floats) == raw(int32=False).tobytes()[wire.FRAME_PREFIX_BYTES :]
    assert Ether(raw(int32=True).tobytes())[Ina].values == raw(int32=True)["values"][0].tolist()


def test_what_scapy_builds_is_what_the_library_reads() -> None:
    from hostlib.scapy_ina import Ina

    built = bytes(Ina(kind="result", flags="ecn+raw", psn=7, valid=wire.VALID_INT32 | 3, values=[1, -2, 3]))
    read = np.frombuffer(built, wire.packet_dtype(3, framed=False))[0]
    assert (read["version_kind"], read["flags"]) == (wire.version_kind(wire.KIND_RESULT), 0xA0)
    assert (read["psn"], read["lanes"], read["values"].tolist()) == (7, 3, [1, -2, 3])


# ------------------------------------------------------------------ Wireshark


def test_the_lua_dissector_reads_each_field_where_the_library_writes_it() -> None:
    text = dissector()
    assert "@" not in text, "a place that nothing was written to"
    reads = dict(re.findall(r"(?:top|bits = top):add\(fields\.(\w+), buffer\((\d+, \d+)\)\)", text))
    places = {
        name: (offset, dtype.itemsize)
        for name, (dtype, offset, *_) in (wire.HEADER_DTYPE.fields or {}).items()
    }
    first = places.pop("version_kind")
    assert {name: tuple(map(int, place.split(", "))) for name, place in reads.items()} == {
        "version": first,
        "kind": first,
        **places,
    }
    widths = {name: int(bits) for bits, name in re.findall(r'ProtoField\.uint(\d+)\("ina\.(\w+)"', text)}
    assert widths == {"version": 8, "kind": 8} | {name: 8 * width for name, (_, width) in places.items()}


def pcap(path: Path, packets: list[NDArray[Any]]) -> Path:
    """Write a classic capture file with nanoseconds, by hand: the format's own definition."""
    blocks = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 65535, 1)]
    for number, sent in enumerate(packets):
        data = sent.tobytes()
        blocks.append(struct.pack("<IIII", 0, number, len(data), len(data)) + data)
    path.write_bytes(b"".join(blocks))
    return path


@pytest.mark.skipif(shutil.which("tshark") is None, reason="needs tshark (Debian: apt-get install tshark)")
def test_tshark_shows_every_field_of_every_kind(tmp_path: Path) -> None:
    script = tmp_path / "ina.lua"
    script.write_text(dissector())
    packets = [*EVERY, raw(int32=False), raw(int32=True)]
    shown = [*FIELDS, "kind", "value", "float", *(f"flags.{name}" for name in wire.NAMES_OF_FLAGS.values())]
    command = ["tshark", "-X", f"lua_script:{script}", "-r", str(pcap(tmp_path / "all.pcap", packets))]
    command += ["-T", "fields", *(part for name in shown for part in ("-e", f"ina.{name}"))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(packets)
    for sent, line in zip(packets, lines, strict=True):
        seen = dict(zip(shown, line.split("\t"), strict=True))
        assert {name: int(seen[name], 0) for name in FIELDS} == {name: int(sent[name][0]) for name in FIELDS}
        assert int(seen["kind"]) == sent["version_kind"][0] & 15
        for bit, name in wire.NAMES_OF_FLAGS.items():
            assert seen[f"flags.{name}"] in (("1", "True") if sent["flags"][0] & bit else ("0", "False"))
        lanes = sent["values"][0]
        if sent["flags"][0] & wire.FLAG_RAW and not sent["valid"][0] & wire.VALID_INT32:
            assert [float(number) for number in seen["float"].split(",")] == lanes.view(">f4").tolist()
        else:
            assert [int(number) for number in seen["value"].split(",") if number] == lanes.tolist()
