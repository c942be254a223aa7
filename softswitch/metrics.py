"""Serve a switch's counters to Prometheus, in its text format, at ``http://127.0.0.1:PORT/metrics``."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Literal

from softswitch.engine.ports import PortStatistics, SwitchStatistics, meanings
from softswitch.engine.switch import Switch

CONTENT_TYPE = "text/plain; version=0.0.4"


class MetricsUnknown(Exception):
    """The metrics are not available now; the message states why."""


def render(switch: Switch) -> str:
    """Return the present values of all counters of the switch and its ports, in Prometheus's text format."""
    ports = {port: asdict(switch.statistics(port)) for port in switch.ports}
    lines: list[str] = []
    for name, meaning in meanings(PortStatistics).items() if ports else ():
        values = {metric_labels(port=port): counts[name] for port, counts in ports.items()}
        lines += metric_family(f"ina_switch_port_{name}_total", meaning, values)
    whole = asdict(switch.switch_statistics())
    for name, meaning in meanings(SwitchStatistics).items():
        lines += metric_family(f"ina_switch_{name}_total", meaning, {"": whole[name]})
    lines += metric_family("ina_switch_program_loads_total", "Programs loaded.", {"": switch.loads})
    return "\n".join(lines) + "\n"


def metric_family(
    name: str, meaning: str, values: Mapping[str, float], kind: Literal["counter", "gauge"] = "counter"
) -> list[str]:
    """Return the lines of one counter or gauge.

    Args:
        name: The metric's name.
        meaning: The metric's description.
        values: The metric's values, by labels as `metric_labels` returns them.
        kind: ``counter`` or ``gauge``.
    """
    head = [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}"]
    return head + [f"{name}{labels} {_number(value)}" for labels, value in values.items()]


def _number(value: float) -> str:
    return f"{value:.15g}" if isinstance(value, float) else str(value)


def metric_labels(**values: object) -> str:
    """Return a value's labels in Prometheus's text format, such as ``{port="1"}``."""
    escapes = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})
    return "{" + ",".join(f'{name}="{str(value).translate(escapes)}"' for name, value in values.items()) + "}"


@contextmanager
def serve_metrics(text: Callable[[], str], port: int) -> Iterator[int]:
    """Serve the result of `text` on loopback, and yield the port; `port` 0 takes a free one. Raises OSError.

    If `text` raises MetricsUnknown, the answer is status 503 with the exception's message.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path != "/metrics":
                self.send_error(404, "the counters are at /metrics")
                return
            try:
                answer = text().encode()
            except MetricsUnknown as error:
                self.send_error(503, str(error).encode("ascii", "replace").decode().splitlines()[0])
                return
            self.send_response(200)
            self.send_header("Content-Type", CONTENT_TYPE)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: Prometheus asks every few seconds."""

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
