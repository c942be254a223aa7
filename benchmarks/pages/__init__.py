"""Published results, one experiment a module: ``ina experiment benchmarks.pages.loss``, in a clone.

``python -m benchmarks.pages`` runs them by name. A module is imported when its page is run: that takes as
long as the whole command line.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from bmv2_topos import harness

RESULTS: Final = Path(__file__).resolve().parents[2] / "docs" / "results"
"""Folder of the published pages."""
QUESTIONS: Final[Mapping[str, str]] = {
    "memory": "how much switch memory jobs need, with slots of their own, with shared ones, and with ATP as"
    " published",
    "stragglers": "what a job with a straggler costs a healthy one, with AIMD's one window and with A2TP's"
    " two",
    "loss": "how much goodput is left when links lose packets",
    "preemption": "what jobs gain when urgent packets take slots from others",
    "atp": "what ATP's choices cost or bring: hashed positions that rehash, held slots, results by the"
    " server",
    "traffic": "how much traffic two levels of aggregation save on the links",
    "precision": "which scaling factors of gradients keep a model's accuracy, and how few bits",
    "few-bits": "what gradients in 16, 8 and 4 bits save on slow links",
    "scaling": "how long an allreduce takes by number of workers, beside gloo's ring on the same links",
    "coexistence": "how jobs share a slow link with TCP and with each other, by congestion control",
    "deadlines": "which jobs meet their deadlines when jobs compete for switch memory, and which are"
    " slowed down for it",
    "trees": "what NetPack's placement and GRID's trees bring beside simple policies",
    "which-policy": "which policies to use on which kind of cluster, what they gain, and who pays",
    "mina": "whether a replica of MINA's simulator comes to its published efficiencies, part by part",
    "cluster-validation": "how far off `ina cluster simulate` is from packets",
    "model": "how far virtual time is from real processes",
}
"""All pages by name, with the question that each answers, in the order of the results index."""


def source(name: str) -> str:
    """Return the module of a page, for `ina experiment`. Raises KeyError if there is no such page."""
    if name not in QUESTIONS:
        raise KeyError(name)
    return f"benchmarks.pages.{name.replace('-', '_')}"


def load(name: str) -> harness.Experiment:
    """Return the experiment of a page. Raises KeyError if there is no such page."""
    return harness.load(source(name))
