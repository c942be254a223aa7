"""Prints Ray's own view: the nodes of each placement group that is created, by its name."""

from __future__ import annotations

import json

import ray
from ray.util import placement_group_table

ray.init(address="auto", log_to_driver=False, logging_level="ERROR")
names = {node["NodeID"]: node["NodeName"] for node in ray.nodes()}
found = {
    group["name"]: [number, sorted(names[node] for node in group["bundles_to_node_id"].values())]
    for number, group in placement_group_table().items()
    if group["state"] == "CREATED"
}
print(json.dumps(found))
