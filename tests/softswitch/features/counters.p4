// Indirect counters by a field, out of range; direct counters, with hit, miss and a deleted entry.
header key_t {
    bit<8> a;
    bit<8> b;
}

struct headers_t {
    key_t h;
}

struct metadata_t { }

#include "include/one_header.p4"

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    counter(8, CounterType.packets_and_bytes) both;
    counter(4, CounterType.packets) packets_only;
    counter(4, CounterType.bytes) bytes_only;
    direct_counter(CounterType.packets_and_bytes) hits;
    direct_counter(CounterType.packets) masked_hits;

    action to(bit<9> port) {
        standard_metadata.egress_spec = port;
    }
    action counted(bit<9> port) {
        standard_metadata.egress_spec = port;
        masked_hits.count();
    }
    table exact_hits {
        key = { hdr.h.b: exact; }
        actions = { to; NoAction; }
        default_action = NoAction();
        counters = hits;
    }
    table ternary_hits {
        key = { hdr.h.b: ternary; }
        actions = { counted; NoAction; }
        default_action = NoAction();
        counters = masked_hits;
    }
    apply {
        standard_metadata.egress_spec = 1;
        both.count((bit<32>)hdr.h.a);
        packets_only.count((bit<32>)hdr.h.a[1:0]);
        bytes_only.count((bit<32>)hdr.h.a[1:0]);
        exact_hits.apply();
        ternary_hits.apply();
    }
}

control E(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    counter(512, CounterType.packets_and_bytes) sent;
    apply {
        sent.count((bit<32>)standard_metadata.egress_port);
        hdr.h.setInvalid();
    }
}

V1Switch(P(), NoChecksums(), C(), E(), NoChecksums(), EmitAll()) main;

/* packets
add exact_hits 1 => to(3)
add exact_hits 2 => to(4)
add ternary_hits prio=1 0x80&&&0x80 => counted(5)
packet 0 01 01 000000
expect 3 000000
packet 0 01 02 0000
expect 4 0000
packet 0 07 01 00
expect 3 00
packet 0 08 01
expect 3
packet 0 ff 99 00000000
expect 5 00000000
counter both 1 = 2 9
counter both 7 = 1 3
counter both 0 = 0 0
counter packets_only 1 = 2 9
counter packets_only 3 = 2 9
counter bytes_only 0 = 1 2
direct exact_hits 1 = 3 10
direct exact_hits 2 = 1 4
direct ternary_hits prio=1 0x80&&&0x80 = 1 6
counter sent 3 = 3 10
counter sent 5 = 1 6
modify exact_hits 1 => to(6)
packet 0 01 01 000000
expect 6 000000
direct exact_hits 1 = 4 15
delete exact_hits 1
add exact_hits 1 => to(6)
direct exact_hits 1 = 0 0
*/
