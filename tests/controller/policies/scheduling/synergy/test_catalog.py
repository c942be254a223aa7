import pytest

from controller.policies.scheduling.synergy.allocators import top_up, tune
from controller.policies.scheduling.synergy.demand import BadDemand, Servers, ServerShape
from controller.policies.scheduling.synergy.opt import opt
from controller.policies.scheduling.synergy.profiling import TASKS, draw, model_profiles, profile_all

SERVER = ServerShape(gpus=8, cpus=24, memory_gb=500)
KINDS = {k: [n for n, t in TASKS.items() if t.kind == k] for k in ("image", "text", "sound")}


def test_drawn_jobs_fill_the_cluster_and_depend_on_the_seed_only() -> None:
    matrices = profile_all()
    mix = {"image": 20.0, "text": 70.0, "sound": 10.0}
    a, b, c = (
        draw(matrices, KINDS, mix, gpus=64, server=SERVER, seed=seed, sizes=(1, 2, 4)) for seed in (1, 1, 2)
    )
    assert sum(j.gpus for j in a) == 64
    assert a == b
    assert [j.job for j in a] != [j.job for j in c]


def test_a_mix_of_unknown_kinds_is_refused() -> None:
    for mix in ({"video": 1.0}, {"image": 0.0}):
        with pytest.raises(BadDemand, match="positive weights for some of the kinds image, text, sound"):
            draw(profile_all(), KINDS, mix, gpus=8, server=SERVER, seed=0)


def test_topped_up_tune_is_within_a_tenth_of_the_optimum_on_128_gpus() -> None:
    pytest.importorskip("scipy")
    matrices = profile_all()
    mix = {"image": 20.0, "text": 70.0, "sound": 10.0}
    for seed in range(3):
        jobs = draw(matrices, KINDS, mix, gpus=128, server=SERVER, seed=seed)
        best = opt(jobs, Servers.equal(16, SERVER)).plan.throughput
        assert (
            top_up(tune(jobs, Servers.equal(16, SERVER)), Servers.equal(16, SERVER)).throughput >= 0.9 * best
        )
        assert tune(jobs, Servers.equal(16, SERVER)).throughput >= 0.85 * best


def test_made_up_profiles_are_at_their_fastest_with_their_ideal_share() -> None:
    for name, profile in model_profiles(SERVER).items():
        matrix = profile.sensitivity
        fair, best = matrix.at(3, 62.5), matrix.at(24, 250)
        assert matrix.at(profile.ideal_cpus, profile.ideal_memory_gb) == best, name
        assert profile.speedup == pytest.approx(best / fair)
        assert matrix.at(profile.ideal_cpus - 1, profile.ideal_memory_gb) < best
