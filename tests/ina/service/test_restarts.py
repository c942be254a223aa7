"""How often workers were started, as jobs show it."""

from __future__ import annotations

from controller.vocabulary import Job
from tests.ina.service.served import CLUSTER, LEFT, RIGHT, Served, play


def test_starts_counts_when_a_new_tree_makes_workers_start_again() -> None:
    """Also if the daemon is killed meanwhile."""

    async def story(served: Served) -> None:
        served.world.iterations["own"] = 2000
        job = Job(name="own", workers=2, servers=(LEFT, RIGHT), command=("train",), iterations=2000)
        await served.daemon.submit([job])
        await served.until(lambda: served.daemon.record("own").state == "running")
        assert served.daemon.record("own").starts == 1
        place = served.daemon.record("own").place
        assert place is not None
        assert place.tree is not None
        racks = {CLUSTER.rack_of[LEFT], CLUSTER.rack_of[RIGHT]}
        (spine,) = (each for each in place.tree.switches if each not in racks)
        await served.daemon.drain(spine)
        await served.until(lambda: served.daemon.record("own").starts == 2)
        await served.again()
        await served.until(lambda: served.daemon.record("own").state == "running")
        assert served.daemon.record("own").starts == 2
        told = [each.entry.text for each in served.daemon.explain("own").decisions]
        assert "its workers start again: job 'own' is to have another tree" in told
        await served.until(lambda: served.daemon.record("own").over)
        assert (served.daemon.record("own").state, served.daemon.record("own").starts) == ("completed", 2)
        await served.daemon.drain(spine, back=True)
        await served.clean()

    play(story)
