"""An event that happens once: who waits for it, before and after."""

from __future__ import annotations

import threading

from hostlib.collectives.handle import Once


def test_whoever_waits_before_or_after_goes_on() -> None:
    once = Once()
    assert not once.has_happened
    assert not once.wait(0.0)
    found: list[bool] = []
    waiters = [threading.Thread(target=lambda: found.append(once.wait(30.0))) for _ in range(4)]
    for waiter in waiters:
        waiter.start()
    once.happen()
    for waiter in waiters:
        waiter.join()
    assert found == [True] * 4
    assert once.has_happened
    assert once.wait(0.0)
    assert once.wait()
