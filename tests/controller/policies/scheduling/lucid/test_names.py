import pytest

from controller.policies.scheduling.lucid.estimates import bucket_names
from controller.policies.scheduling.lucid.usage import BadSample


def test_similar_names_share_a_bucket() -> None:
    pytest.importorskip("sklearn")
    names = [f"resnet50-imagenet-run{i}" for i in range(6)] + [f"rl-ppo-lunar{i}" for i in range(6)]
    buckets = bucket_names(names, most_common=0)
    assert len({buckets.bucket(n) for n in names[:6]}) == 1
    assert len({buckets.bucket(n) for n in names[6:]}) == 1
    assert buckets.bucket(names[0]) != buckets.bucket(names[6])


def test_an_unseen_name_joins_the_nearest_or_nobody() -> None:
    pytest.importorskip("sklearn")
    buckets = bucket_names([f"resnet50-v{i}" for i in range(5)] + ["bert-squad"], most_common=0)
    assert buckets.bucket("resnet50-v77") == buckets.bucket("resnet50-v1")
    assert buckets.bucket("zzz") == -1


def test_common_names_stand_for_themselves_and_need_no_extra() -> None:
    buckets = bucket_names(["b", "a", "b", "c"], most_common=3)
    assert buckets.exemplars == ("b", "a", "c")
    assert [buckets.bucket(n) for n in "abc"] == [1, 0, 2]


def test_names_that_nothing_tells_apart_are_one_bucket() -> None:
    pytest.importorskip("sklearn")
    buckets = bucket_names(["ab", "ac", "ad"], most_common=0)
    assert {buckets.bucket(n) for n in ("ab", "ac", "ad")} == {0}


def test_no_names_are_refused() -> None:
    with pytest.raises(BadSample, match="0 names"):
        bucket_names([])
