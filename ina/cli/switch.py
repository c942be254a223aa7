"""``ina switch``: the embedded switch as a process."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import softswitch
from hostlib.version import PROTOCOL
from ina.cli import options
from ina.cli.command import USAGE, Declared, Failure, failing_at, refuse, say
from ina.cli.options import parse_address, parse_defines
from ina.run.launch import PRIVATE
from p4src.programs import source_of
from softswitch import SwitchSettings, run_switch  # loaded here, by name, not when the switch runs

if TYPE_CHECKING:
    from ina.run.switches.switch_log import SwitchLog


NOTES = "outcome,index"
"""Metadata fields that captures record by default: an INA packet's outcome and slot, for `ina trace`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSettings:
    """Options of 'ina switch': ports, program, addresses for controllers, faults, captures, logs."""

    port: Annotated[
        list[str] | None,
        Declared(
            metavar="N=SPEC",
            help="Attach port N: udp:LOCAL[:PEER], socket:FD[:PEER], shm[:PATH], veth:NAME, if:NAME, "
            "memory or cpu. The port exchanges packets only with UDP port PEER; without PEER, "
            "the first sender becomes the peer. Repeatable.",
        ),
    ] = None
    interface: Annotated[
        list[str] | None,
        Declared(
            "-i",
            "--interface",
            metavar="N@NAME",
            help="Attach port N to a network interface, like --port N=if:NAME. Repeatable.",
        ),
    ] = None
    program: Annotated[
        str | None,
        Declared(
            help="Load this program of p4src/, or this .p4 file. Default: wait for a controller to load one."
        ),
    ] = None
    lanes: options.Lanes = 256
    define: options.Defines = None
    arch: Annotated[
        Literal["v1model", "tna", "t2na"] | None,
        Declared(
            help="Accept only programs for this architecture. Default: any; the architecture file that a "
            "program includes decides.",
            show_default=False,
        ),
    ] = None
    runtime: Annotated[
        list[Path] | None,
        Declared(
            metavar="FILE",
            help="Fill the tables of --program from this file, before any packet: a .json file like "
            "s1-runtime.json of p4lang/tutorials, or a file with another suffix and commands of "
            "simple_switch_CLI. Repeatable.",
        ),
    ] = None
    p4runtime: Annotated[
        str,
        Declared(
            "--p4runtime",
            "--grpc-server-addr",
            metavar="ADDRESS",
            help="Serve P4Runtime at HOST:PORT (port 0: any free port), unix:PATH, or unix: a socket "
            "in a directory that only this user can enter.",
        ),
    ] = "127.0.0.1:0"
    bfrt: Annotated[
        str | None,
        Declared(
            metavar="HOST:PORT",
            help="Serve BF Runtime, too, for controllers that are written for Tofino, at this address "
            "(port 0: any free port). Anyone who can reach it controls the switch.",
        ),
    ] = None
    device_id: Annotated[int, Declared(min=0, help="Use this P4Runtime device id.")] = 0
    tls_cert: Annotated[
        Path | None, Declared(help="Serve P4Runtime over TLS with this certificate (PEM).")
    ] = None
    tls_key: Annotated[
        Path | None,
        Declared(help="With --tls-cert: use the certificate's private key in this file (PEM)."),
    ] = None
    tls_ca: Annotated[Path | None, Declared(help="Require client certificates signed by this CA (mTLS).")] = (
        None
    )
    impair: Annotated[
        list[str] | None,
        Declared(
            metavar="[N:]K=V,…",
            rich_help_panel=options.FAULTS,
            help="Impair the link at port N, or at every port: loss, duplicate, reorder, corrupt, "
            "delay, jitter, rate, queue, seed. A prefix rx. or tx. limits a key to one "
            "direction. Repeatable.",
        ),
    ] = None
    watch: Annotated[
        bool,
        Declared(
            "--watch",
            help="Reload the --program when its files change; tables that both versions have keep "
            "their entries.",
        ),
    ] = False
    metrics_port: Annotated[
        int | None,
        Declared(
            min=0, max=65535, help="Serve the counters for Prometheus at http://127.0.0.1:PORT/metrics."
        ),
    ] = None
    log: Annotated[
        Path | None,
        Declared(
            writable=True,
            metavar="FILE",
            help="Append one line of JSON to this file for each job that is admitted or removed: time, "
            "client, job, slots, and the report of the job's holder.",
        ),
    ] = None
    seed: options.Seed = 0
    undefined: options.Undefined = None
    log_console: Annotated[
        bool,
        Declared(
            "--log-console",
            help="Log what happens to each packet to standard error: parser states, tables, actions, "
            "registers. Uses the interpreter, which is slow.",
        ),
    ] = False
    interpret: Annotated[bool, Declared(help="Interpret the program instead of compiling it.")] = False
    until_eof: Annotated[
        bool,
        Declared("--until-eof", help="Exit when standard input ends, to exit with the parent process."),
    ] = False
    pcap_name: Annotated[
        str, Declared(rich_help_panel=options.CAPTURES, help="Give the switch this name in captures.")
    ] = "s1"
    pcap_notes: Annotated[
        str,
        Declared(
            metavar="NAME,…",
            rich_help_panel=options.CAPTURES,
            help="Write these metadata fields of the program with each captured incoming packet.",
        ),
    ] = NOTES
    captures: options.PcapOptions

    def check(self) -> None:
        """Raise Failure for options that need another option, and for invalid addresses."""
        if self.p4runtime != PRIVATE and not self.p4runtime.startswith("unix:"):
            parse_address("--p4runtime", self.p4runtime)
        if self.bfrt is not None:
            parse_address("--bfrt", self.bfrt)
        needs = {
            "--define": (self.define, "to which it applies"),
            "--runtime": (self.runtime, "whose tables it fills"),
            "--watch": (self.watch, "whose files it watches"),
        }
        for option, (given, why) in needs.items():
            refuse(given and self.program is None, f"{option} needs --program, {why}")


def switch(asked: EmbeddedSettings) -> None:
    """Run the embedded switch until interrupted.

    When ready, prints one line of JSON: p4runtime (its address), grpc_port, udp_ports and shm_ports (by port
    number), device_id, program and protocol (the version of this line, and of answers to a parent process).
    Anyone who can reach P4Runtime controls the switch; see
    docs/explanations/security-start.md.

    Examples:
        ina switch --port 1=udp:27001:28001 --port 2=udp:27002:28002 --p4runtime 127.0.0.1:9559

        ina switch --port 1=udp:27001 --port 2=udp:27002 --p4runtime unix:/run/user/1000/s1.sock

        ina switch --port 1=veth:s1-eth1 --port 2=veth:s1-eth2 --program exclusive --lanes 256

        ina switch -i 1@veth0 -i 2@veth1 --device-id 1 --grpc-server-addr 127.0.0.1:9559

        ina switch --program shared --port 1=udp:0 --port 2=udp:0 --pcap captures --pcap-limit 100MB

        ina switch --program mine.p4 -i 1@veth0 --log-console

        ina switch --program mine.p4 -i 1@veth0 --watch --metrics-port 9090

        ina switch --program basic.p4 --runtime s1-runtime.json -i 1@veth0 -i 2@veth1

        ina switch --port 1=udp:27001:28001 --p4runtime 127.0.0.1:9559 --log jobs.log

        ina switch --program exclusive --port 1=udp:0 --impair loss=5%,delay=1ms,tx.rate=1G
    """
    specs = _ports([*(asked.port or ()), *map(_interface, asked.interface or ())])
    asked.check()
    _warn_of_unknown_peers(specs)
    source: Path | None = None
    defines: dict[str, str] = {}
    if asked.program is not None:
        source, defines = source_of(asked.program, asked.lanes)
        defines |= parse_defines(asked.define or [])
    kept = None if asked.log is None else _open_log(asked.log)
    run_switch(
        SwitchSettings(
            ports=specs,
            program=source,
            defines=defines,
            address=None if asked.p4runtime == PRIVATE else asked.p4runtime,
            bfrt=asked.bfrt,
            device_id=asked.device_id,
            tls=_tls(asked.tls_cert, asked.tls_key, asked.tls_ca),
            impairments=_impairments(asked.impair or [], specs),
            seed=asked.seed,
            backend="interpreter" if asked.interpret else "compiled",
            undefined=options.choice(asked.undefined),
            architecture=asked.arch,
            log=sys.stderr if asked.log_console else None,
            metrics_port=asked.metrics_port,
            watch=asked.watch,
            ready=sys.stdout,
            greeting={"protocol": PROTOCOL},
            until_eof=asked.until_eof,
            capture=_capture(asked.captures, asked.pcap_name, asked.pcap_notes),
            journal=None if kept is None else kept.written,
            runtime=asked.runtime or (),
        )
    )


def _open_log(path: Path) -> SwitchLog:
    from ina.run.switches.switch_log import SwitchLog  # also loads the controller's switches

    with failing_at(f"--log {path}", OSError):
        file = path.open("a", encoding="utf-8")
    log = SwitchLog(file)
    log.started()
    return log


def _capture(captures: options.PcapOptions, name: str, notes: str) -> softswitch.CaptureTo | None:
    if captures.pcap is None:
        return None
    refuse(not name or "/" in name, f"--pcap-name {name!r}: want a name without '/', to begin file names")
    chosen = tuple(filter(None, notes.split(",")))
    with failing_at("--pcap-notes", ValueError):
        softswitch.CaptureSettings(notes=chosen)
    folder, snap = captures.pcap, captures.pcap_snap
    return softswitch.CaptureTo(folder=folder, name=name, notes=chosen, snap=snap, limit=captures.limit())


def _interface(text: str) -> str:
    number, at, name = text.partition("@")
    refuse(not at or not number.isdigit() or not name, f"-i {text!r}: want N@NAME, such as 1@veth0")
    return f"{number}=if:{name}"


def _ports(texts: list[str]) -> dict[int, softswitch.PortSpec]:
    refuse(not texts, "the switch has no ports; give --port or -i")
    specs: dict[int, softswitch.PortSpec] = {}
    for text in texts:
        number, equals, spec = text.partition("=")
        refuse(not equals or not number.isdigit(), f"--port {text!r}: want N=SPEC, such as 1=udp:27001")
        refuse(
            int(number) > softswitch.MAX_PORT, f"--port {text!r}: want a port from 0 to {softswitch.MAX_PORT}"
        )
        refuse(int(number) in specs, f"--port {text!r}: port {number} is given twice")
        with failing_at(f"--port {text!r}", softswitch.SwitchError):
            specs[int(number)] = softswitch.parse_port(spec)
    return specs


def _warn_of_unknown_peers(specs: dict[int, softswitch.PortSpec]) -> None:
    unknown = [number for number, spec in specs.items() if softswitch.takes_any_peer(spec)]
    if unknown:
        say(
            f"ina: warning: --port {', '.join(map(str, unknown))}: no peer is given, so the first sender"
            " becomes the peer, and that can be any user of this machine; give the peer's UDP port, as in"
            " 1=udp:27001:28001 (docs/explanations/security.md)"
        )


def _impairments(
    texts: list[str], ports: dict[int, softswitch.PortSpec]
) -> dict[int, softswitch.PortImpairments]:
    impairments: dict[int, softswitch.PortImpairments] = {}
    for text in texts:
        number, colon, rest = text.partition(":")
        with failing_at(f"--impair {text!r}", ValueError):
            parsed = softswitch.PortImpairments.parse(rest if colon else text)
        refuse(
            colon and (not number.isdigit() or int(number) not in ports),
            f"--impair {text!r}: the switch has no port {number}",
        )
        for port in [int(number)] if colon else list(ports):
            impairments[port] = parsed
    return impairments


def _tls(cert: Path | None, key: Path | None, ca: Path | None) -> softswitch.Tls | None:
    if cert is None and key is None and ca is None:
        return None
    if cert is None or key is None:
        raise Failure("--tls-cert and --tls-key need each other: give both", exit_code=USAGE)
    return softswitch.Tls(cert, key, ca)
