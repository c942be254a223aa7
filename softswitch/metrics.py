"""The switch's counters for Prometheus, in its text format, at ``http://127.0.0.1:PORT/metrics``."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from softswitch.engine.counters import PortStatistics, SwitchStatistics, meanings
from softswitch.engine.switch import Switch

CONTENT_TYPE = "text/plain; version=0.0.4"


def render(switch: Switch) -> str:
    """Return all counters of ports, and those of the switch, as of now."""
    ports = {port: asdict(switch.statistics(port)) for port in switch.ports}
    lines: list[str] = []
    for name, meaning in meanings(PortStatistics).items() if ports else ():
        values = {f'{{port="{port}"}}': counts[name] for port, counts in ports.items()}
        lines += _family(f"ina_switch_port_{name}_total", meaning, values)
    whole = asdict(switch.switch_statistics())
    for name, meaning in meanings(SwitchStatistics).items():
        lines += _family(f"ina_switch_{name}_total", meaning, {"": whole[name]})
    lines += _family("ina_switch_program_loads_total", "Programs loaded.", {"": switch.loads})
    return "\n".join(lines) + "\n"


def _family(name: str, meaning: str, values: Mapping[str, int]) -> list[str]:
    """Return the lines of one counter; `values` by their labels as text."""
    head = [f"# HELP {name} {meaning}", f"# TYPE {name} counter"]
    return head + [f"{name}{labels} {value}" for labels, value in values.items()]


@contextmanager
def serve_metrics(switch: Switch, port: int) -> Iterator[int]:
    """Serve the counters on loopback, and yield the port; 0 takes a free one. Raises OSError."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/metrics":
                self.send_error(404, "the counters are at /metrics")
                return
            text = render(switch).encode()
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing: Prometheus asks every few seconds."""

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="metrics", daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
