"""``ina undrain``: servers and switches that are to be used again."""

from __future__ import annotations

from ina.cli.output import out
from ina.cli.service.common import ControllerOptions, plain
from ina.cli.service.drain import Nodes, known

EPILOG = """Examples:

  ina undrain s2 --controller http://127.0.0.1:9580
"""


def undrain(nodes: Nodes, *, at: ControllerOptions) -> None:
    """Let servers or switches that were drained be used again."""
    with at.connect() as controller:
        for node in known(controller, nodes, drained=True):
            controller.drain(node, back=True)
            out.print(f"{plain(node)}: in use", soft_wrap=True)
