"""Small programs for Tofino: the blocks that every one has, around what a test is about."""

from __future__ import annotations

from softswitch.compiler import compile_source, ir
from softswitch.compiler.frontend.preprocess import preprocess

ETHERNET = "header ethernet_t { bit<48> dst; bit<48> src; bit<16> kind; }"


def source(
    *,
    declarations: str = "",
    headers: str = "",
    metadata: str = "bit<8> unused;",
    ingress_locals: str = "",
    ingress: str = "tm.ucast_egress_port = 2;",
    ingress_deparser_locals: str = "",
    ingress_deparser: str = "packet.emit(hdr);",
    egress_first: str = "packet.extract(intrinsic);",
    egress_start: str = "packet.extract(hdr.ethernet); transition accept;",
    egress_locals: str = "",
    egress: str = "",
    egress_deparser_locals: str = "",
    egress_deparser: str = "packet.emit(hdr);",
    ingress_start: str = "packet.extract(hdr.ethernet); transition accept;",
    parser_locals: str = "",
    architecture: str = "tna",
) -> str:
    """Return a program: each part is P4 in the place that its name says."""
    return f"""
#include <core.p4>
#include <{architecture}.p4>
{ETHERNET}
{declarations}
struct headers_t {{ {headers} ethernet_t ethernet; }}
struct metadata_t {{ {metadata} }}
parser IngressParser(packet_in packet, out headers_t hdr, out metadata_t meta,
                     out ingress_intrinsic_metadata_t intrinsic) {{
    {parser_locals}
    state start {{
        packet.extract(intrinsic);
        transition select(intrinsic.resubmit_flag) {{ 1: resubmitted; default: of_port; }}
    }}
    state resubmitted {{ packet.advance(PORT_METADATA_SIZE); transition of_frame; }}
    state of_port {{ packet.advance(PORT_METADATA_SIZE); transition of_frame; }}
    state of_frame {{ {ingress_start} }}
}}
control Ingress(inout headers_t hdr, inout metadata_t meta, in ingress_intrinsic_metadata_t intrinsic,
                in ingress_intrinsic_metadata_from_parser_t parsed,
                inout ingress_intrinsic_metadata_for_deparser_t deparser,
                inout ingress_intrinsic_metadata_for_tm_t tm) {{
    {ingress_locals}
    apply {{ {ingress} }}
}}
control IngressDeparser(packet_out packet, inout headers_t hdr, in metadata_t meta,
                        in ingress_intrinsic_metadata_for_deparser_t deparser) {{
    {ingress_deparser_locals}
    apply {{ {ingress_deparser} }}
}}
parser EgressParser(packet_in packet, out headers_t hdr, out metadata_t meta,
                    out egress_intrinsic_metadata_t intrinsic) {{
    state start {{ {egress_first} {egress_start} }}
}}
control Egress(inout headers_t hdr, inout metadata_t meta, in egress_intrinsic_metadata_t intrinsic,
               in egress_intrinsic_metadata_from_parser_t parsed,
               inout egress_intrinsic_metadata_for_deparser_t deparser,
               inout egress_intrinsic_metadata_for_output_port_t port) {{
    {egress_locals}
    apply {{ {egress} }}
}}
control EgressDeparser(packet_out packet, inout headers_t hdr, in metadata_t meta,
                       in egress_intrinsic_metadata_for_deparser_t deparser) {{
    {egress_deparser_locals}
    apply {{ {egress_deparser} }}
}}
Pipeline(IngressParser(), Ingress(), IngressDeparser(), EgressParser(), Egress(), EgressDeparser()) pipe;
Switch(pipe) main;
"""


def program(**parts: str) -> ir.Program:
    """Compile the program of these parts."""
    return compile_source(source(**parts), name="tofino.p4")


def preprocessed(**parts: str) -> str:
    """Return the program of these parts as a controller sends it."""
    return preprocess(source(**parts), "tofino.p4")


def frame(dst: int = 1, src: int = 2, kind: int = 0x1234, payload: bytes = b"payload") -> bytes:
    """Return an Ethernet frame."""
    return dst.to_bytes(6, "big") + src.to_bytes(6, "big") + kind.to_bytes(2, "big") + payload
