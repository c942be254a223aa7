"""`ina bench switch` measures packets that are forwarded, by tables that are filled."""

from ina.bench.switch import bench_switch


def test_every_table_is_measured_at_its_size() -> None:
    measured = bench_switch(exact=50, lpm=40, ternary=30, round_s=0.001, rounds=1, writes=20)
    assert [case.entries for case in measured.cases] == [1, 50, 1, 40, 30]
    assert all(case.ns_per_packet > 0 < case.one_by_one_ns_per_packet for case in measured.cases)
    assert all(case.forwarded == 1 for case in measured.cases)  # of each packet one left
    assert measured.writes_per_s > 0
