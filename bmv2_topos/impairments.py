"""A link's impairments (such as loss and delay) in the notation of ``ina switch --impair``."""

from __future__ import annotations

from controller.vocabulary import Link

LEAST_DELAY_S = 50e-6


def link_impairments(link: Link, *, rate: bool = True) -> str:
    """Return a link's impairments as for ``ina switch --impair``; rate and queue only if `rate` is True."""
    given = {"loss": link.loss, "duplicate": link.duplicate, "reorder": link.reorder}
    if link.delay_s >= LEAST_DELAY_S:
        given["delay"] = link.delay_s
    if link.reorder:
        given["reorder_delay"] = link.reorder_s
    if rate and link.rate_bps:
        given |= {"rate": link.rate_bps, "queue": link.queue_packets}
    return ",".join(f"{key}={value!r}" for key, value in given.items() if value)


def outgoing(impairments: str) -> str:
    """Return the impairments limited to packets that leave the switch (prefix ``tx.``)."""
    return ",".join(f"tx.{part}" for part in impairments.split(","))
