from collections.abc import Callable
from pathlib import Path

import pytest

from controller.policies.scheduling import BadTrace
from controller.policies.scheduling.lucid.family import Config, Pair, read_pairs, read_usages
from controller.policies.scheduling.lucid.usage import GpuUsage

USAGES = "model,dataset,batchsize,amp,speed,gpu_util,gmem_util,gmem\nnet,data,32,0,9.9,50,20,3000\n"
PAIRS = (
    "model1,dataset1,batchsize1,amp1,speed1,model2,dataset2,batchsize2,amp2,speed2\n"
    "a,d,32,0,0.9,b,d,64,1,0.8\n"
)


def test_files_are_read(write_file: Callable[[str, str], Path]) -> None:
    assert read_usages(write_file("f.csv", USAGES)) == {
        Config("net", "data", 32, False): GpuUsage(50, 20, 3000, False)
    }
    pair = Pair(Config("a", "d", 32, False), Config("b", "d", 64, True), 0.9, 0.8)
    assert read_pairs(write_file("f.csv", PAIRS)) == [pair]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (USAGES.replace("gmem_util", "other"), "f.csv:1: column gmem_util: there is no such column"),
        (USAGES.replace(",50,", ",much,"), "f.csv:2: column gpu_util: 'much' is not a number"),
        (USAGES.replace(",50,", ",150,"), "f.csv:2: gpu_util is 150.0; it can be 0 to 100"),
        (USAGES.replace("net,data", ",data"), "f.csv:2: column model: it is missing"),
        (USAGES + USAGES.splitlines()[1] + "\n", "f.csv:3: .* appears twice"),
    ],
)
def test_bad_usages_are_named(write_file: Callable[[str, str], Path], text: str, message: str) -> None:
    with pytest.raises(BadTrace, match=message):
        read_usages(write_file("f.csv", text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (PAIRS.replace("speed2", "s"), "f.csv:1: column speed2: there is no such column"),
        (PAIRS.replace("0.8", "0"), "f.csv:2: column speed2: a speed of 0.0; want a positive number"),
        (PAIRS.replace("a,d,32", "a,d,"), "f.csv:2: column batchsize1: '' is not a number"),
    ],
)
def test_bad_pairs_are_named(write_file: Callable[[str, str], Path], text: str, message: str) -> None:
    with pytest.raises(BadTrace, match=message):
        read_pairs(write_file("f.csv", text))
