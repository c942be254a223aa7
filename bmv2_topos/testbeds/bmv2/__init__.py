"""One ``simple_switch`` whose ports are files: no root, and nothing depends on how long anything takes.

`files` runs the switch, `plane` is its control plane over P4Runtime, `stf` runs scripts on both.
"""

from bmv2_topos.testbeds.bmv2.stf import run_on_bmv2

__all__ = ["run_on_bmv2"]
