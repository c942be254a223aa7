// A learning switch with packets to and from the controller: what the recorded sessions load.
#include <core.p4>
#include <v1model.p4>

const bit<9> CPU = 510;

@controller_header("packet_in")
header packet_in_t { bit<9> ingress_port; bit<7> unused; }
@controller_header("packet_out")
header packet_out_t { bit<9> egress_port; bit<7> unused; }
header ethernet_t { bit<48> dst; bit<48> src; bit<16> type; }
struct headers_t { packet_out_t packet_out; packet_in_t packet_in; ethernet_t ethernet; }
struct metadata_t { }

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    state start {
        transition select(sm.ingress_port) { CPU: from_controller; default: ethernet; }
    }
    state from_controller { packet.extract(hdr.packet_out); transition ethernet; }
    state ethernet { packet.extract(hdr.ethernet); transition accept; }
}

control Verify(inout headers_t hdr, inout metadata_t meta) { apply { } }
control Compute(inout headers_t hdr, inout metadata_t meta) { apply { } }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    counter(8, CounterType.packets) received;
    direct_counter(CounterType.packets_and_bytes) forwarded;

    action forward(bit<9> port) { sm.egress_spec = port; }
    action flood(bit<16> group) { sm.mcast_grp = group; }
    action to_controller() { sm.egress_spec = CPU; }
    table l2 {
        key = { hdr.ethernet.dst: exact; }
        actions = { forward; flood; to_controller; }
        default_action = to_controller();
        counters = forwarded;
    }
    apply {
        if (hdr.packet_out.isValid()) {
            sm.egress_spec = hdr.packet_out.egress_port;
            hdr.packet_out.setInvalid();
        } else {
            received.count((bit<32>)sm.ingress_port);
            l2.apply();
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        if (sm.egress_port == CPU) {
            hdr.packet_in.setValid();
            hdr.packet_in.ingress_port = sm.ingress_port;
        }
    }
}

control D(packet_out packet, in headers_t hdr) {
    apply { packet.emit(hdr.packet_in); packet.emit(hdr.ethernet); }
}

V1Switch(P(), Verify(), I(), E(), Compute(), D()) main;
