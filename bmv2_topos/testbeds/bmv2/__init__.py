"""One ``simple_switch`` whose ports are files: it needs no root, and no result depends on timing.

`files` runs the switch, `plane` is its control plane over P4Runtime, and `stf` runs STF scripts on it.
"""

from bmv2_topos.testbeds.bmv2.stf import run_on_bmv2

__all__ = ["run_on_bmv2"]
