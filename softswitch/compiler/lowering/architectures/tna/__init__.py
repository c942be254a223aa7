"""The architectures of Tofino, TNA and T2NA.

====================  =====================================================================
module                content
====================  =====================================================================
`switch`              the six blocks of a pipeline, and the storages of their parameters
`objects`             instances of the externs
`calls`               methods of the externs, and extern functions; hashes and checksums
`stateful`            registers, register actions, `Lpf`, `Wred` and `MathUnit`
====================  =====================================================================

A packet passes the ingress parser, ingress and the ingress deparser. The deparser's output, followed by the
payload, is what the traffic manager stores and the egress parser gets. No other state passes to egress,
so ``hdr``, ``meta`` and ``standard_metadata`` are structs with a part for ingress and one for egress.
"""

from softswitch.compiler.lowering.architectures.tna.calls import FUNCTIONS, METHODS
from softswitch.compiler.lowering.architectures.tna.objects import MAKERS
from softswitch.compiler.lowering.architectures.tna.switch import PIPELINE, is_for_tofino, lower_switch
from softswitch.compiler.lowering.unit import Architecture

__all__ = ["TNA", "is_for_tofino"]

TNA = Architecture(
    checks=None,
    parts=(PIPELINE,),
    makers=MAKERS,
    methods=METHODS,
    functions=FUNCTIONS,
    lacks="",
    check=lambda unit, main: None,
    lower=lower_switch,
)
