"""Links that several jobs fill: part of their packets are retransmissions.

The queue of such a link holds the windows of all senders, so the round-trip time grows beyond its previous
value; a worker takes late packets for lost, and retransmits them. The amount depends on the transport's
time-outs, and has to be measured.
"""

from __future__ import annotations

import numpy as np

from controller.policies.placement.waterfill import Floats, Flows

LEAST = 0.8
"""Part of its rate that a link keeps, however many jobs fill it: time-outs grow with round trips."""


def link_rates(flows: Flows, senders: np.ndarray, resent: float) -> Floats:
    """Return the links' rates without retransmissions: less by `resent` for each sender beside the first.

    `senders` says for each job whether it sends. O(nodes log nodes).
    """
    if not resent:
        return flows.link_bps
    here = senders[flows.job]
    ends = np.concatenate([flows.link[here], flows.back[here]])
    pairs = np.unique(np.stack([ends, np.tile(flows.job[here], 2)]), axis=1)
    links = len(flows.link_bps)
    jobs = np.bincount(pairs[0][pairs[0] >= 0], minlength=links)
    return flows.link_bps * np.maximum(1 - resent * np.maximum(jobs - 1, 0), LEAST)
