"""What several jobs do to one slot of p4src/shared.p4, case by case."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bmv2.jobs import LARGEST, Job, bare_result, gradient, reminder, result, status
from tests.bmv2.packets import BYPASS, ECN, LANES, QUERY, RAW, RESEND
from tests.bmv2.reference import Arrival


def life_of_a_slot(job: Job, psn: int) -> Iterator[Arrival]:
    """Yield every way in which a contribution meets a slot with its own key."""
    first, last = job.bits[0], job.bits[-1]
    yield gradient(job, first, psn, exponent=100, priority=50)
    yield gradient(job, first, psn, exponent=255)  # duplicate
    yield gradient(job, first, psn, [9] * LANES, flags=QUERY)  # status
    yield gradient(job, first, psn, [9] * LANES, flags=QUERY | RESEND)  # status
    yield gradient(job, first, psn, [9] * LANES, flags=RESEND)  # flushes
    yield gradient(job, first, psn, flags=RESEND)  # nothing there: must not claim
    yield gradient(job, first, psn, flags=RESEND | QUERY)
    yield gradient(job, first, psn, flags=BYPASS)
    yield gradient(job, first, psn, flags=RAW | RESEND, valid=0x8000 | LANES)
    yield gradient(job, first, psn, exponent=9)  # claims again
    for bit in job.bits[1:-1]:
        yield gradient(job, bit, psn, flags=QUERY | RESEND)  # joins
    yield gradient(job, last, psn, flags=RESEND)  # joins and completes
    for bit in job.bits:
        for flags in (0, RESEND, QUERY, QUERY | RESEND, BYPASS, RAW | RESEND):
            yield gradient(job, bit, psn, [77] * LANES, flags=flags)  # replayed
    for flags in (RESEND, BYPASS, BYPASS | RESEND, RAW | RESEND, RAW, ECN, ECN | RESEND):
        psn += 1
        yield gradient(job, first, psn, [5] * LANES, exponent=3, priority=9)
        yield gradient(job, last, psn, [6] * LANES, flags=flags, exponent=4, priority=99)
        yield gradient(job, first, psn, [7] * LANES, flags=flags)
        yield gradient(job, last, psn, [8] * LANES, flags=RESEND, tag=1)


def contest(owner: Job, rival: Job, psn: int) -> Iterator[Arrival]:
    """Yield attempts on a slot that another job has: weaker, as strong and stronger ones, ten times each."""
    bit, other = owner.bits[-1], rival.bits[0]
    for of_owner, of_rival in (
        (100, 5),
        (100, 100),
        (100, 101),
        (255, 255),
        (0, 0),
        (0, 1),
        (255, 0),
        (128, 64),
    ):
        psn += 1
        yield gradient(owner, bit, psn, [psn] * LANES, exponent=31, priority=of_owner, target=1, flags=ECN)
        for attempt in range(10):
            yield gradient(
                rival, other, psn, [-7] * LANES, priority=of_rival, exponent=attempt, valid=attempt
            )
            if attempt % 3 == 0:  # whoever has it now
                yield gradient(owner, bit, psn, flags=QUERY)
                yield gradient(rival, other, psn, flags=QUERY)
        for flags in (RESEND, BYPASS, RAW | RESEND, QUERY):
            yield gradient(rival, other, psn, priority=255, flags=flags)
            yield gradient(owner, bit, psn, priority=255, flags=flags)
        for job in (owner, rival):
            for each in job.bits:
                yield gradient(job, each, psn, [each] * LANES, priority=3)
            yield gradient(job, job.bits[0], psn, flags=RESEND)


def window(job: Job, psn: int) -> Iterator[Arrival]:
    """Yield PSNs apart by almost, just and more than the window, both ways, in a slot that is not full."""
    for distance in (-1, 1, job.window - 1, job.window, job.window + 1, -job.window, 1 << 31, (1 << 31) - 1):
        psn += 1 << 20
        yield gradient(job, job.bits[0], psn, priority=8)
        yield gradient(job, job.bits[0], psn + distance, priority=8)
        yield gradient(job, job.bits[0], psn, flags=QUERY)
        yield gradient(job, job.bits[-1], psn + distance, flags=QUERY)


def pulled(job: Job, psn: int) -> Iterator[Arrival]:
    """Yield reminders for this node and another, at every stage of a slot."""
    first, last = job.bits[0], job.bits[-1]
    values = [31] * LANES
    for node in (job.node, job.node ^ 1, 0xFFFF):
        psn += 10
        yield reminder(job, psn, node=node)
        yield gradient(job, first, psn, values, priority=77, exponent=8, tag=4)
        yield reminder(job, psn, node=node, flags=0xFF, priority=1, exponent=1, tag=1, target=1)
        yield reminder(job, psn, node=node)
        for bit in job.bits:
            yield gradient(job, bit, psn, values, target=2)
        yield gradient(job, last, psn, values, flags=RESEND)
        yield reminder(job, psn + job.window, node=node)
        yield reminder(job, psn, node=node)
        yield reminder(job, psn, node=node)
        yield gradient(job, first, psn + 1, values)
        yield result(job, psn + 1, flags=RAW)  # stored
        yield status(job, psn + 1)
        yield reminder(job, psn + 1, node=node)
        yield bare_result(job, psn + 1, node=node)  # frees
        yield reminder(job, psn + 1, node=node)
        yield gradient(job, first, psn + 1, values, flags=QUERY)


def overflowing(owner: Job, stronger: Job, hasty: Job, psn: int) -> Iterator[Arrival]:
    """Yield partial sums that leave the int32 range, disagree, and lose their slot in every way."""
    first, last = owner.bits[0], owner.bits[-1]
    for way in range(8):
        psn += 20
        for bit in owner.bits[:-1]:
            flags = ECN if bit == 1 else 0
            yield gradient(
                owner, bit, psn, [LARGEST] * LANES, tag=bit, exponent=bit, flags=flags, priority=20
            )
        yield (
            gradient(owner, last, psn, [LARGEST] * LANES, flags=RESEND),  # flushed while it joins
            gradient(owner, first, psn, flags=RESEND),  # flushed as it is
            reminder(owner, psn, node=owner.node),
            gradient(stronger, stronger.bits[0], psn, priority=255),
            gradient(hasty, hasty.bits[0], psn),
            gradient(owner, first, psn + owner.window),
            result(owner, psn),
            bare_result(owner, psn),
        )[way]
        yield gradient(owner, first, psn, flags=QUERY)
