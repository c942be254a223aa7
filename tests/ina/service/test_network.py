"""Where packets go when a part of the network is down."""

from __future__ import annotations

from bmv2_topos.testbeds.netns.forwarding import entries, next_port
from controller.core.allocator import surviving
from controller.vocabulary.catalog import leaf_spine

BED = leaf_spine(2, 2, 1, servers=2)


def test_ordinary_traffic_takes_another_way_around_a_link_that_is_cut() -> None:
    assert next_port(BED, "s3", "h2") == BED.port_to("s3", "s1")
    up = surviving(BED, (), (), {("s1", "s4")})
    assert next_port(BED, "s3", "h2", up) == BED.port_to("s3", "s2")
    assert next_port(BED, "s1", "h2", up) == BED.port_to("s1", "s3")


def test_a_host_that_is_cut_off_keeps_the_row_that_it_has_when_all_is_up() -> None:
    up = surviving(BED, (), (), {("h2", "s4")})
    assert entries(BED, "s4", up) == entries(BED, "s4")
