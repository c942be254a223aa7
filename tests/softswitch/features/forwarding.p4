// Bridge and router in one: MAC table with flooding, routes, TTL, VLAN tag, drop counters.
header ethernet_t {
    bit<48> dst;
    bit<48> src;
    bit<16> type;
}

header vlan_t {
    bit<3>  pcp;
    bit<1>  dei;
    bit<12> vid;
    bit<16> type;
}

header ipv4_t {
    bit<4>  version;
    bit<4>  ihl;
    bit<8>  tos;
    bit<16> len;
    bit<16> id;
    bit<3>  flags;
    bit<13> offset;
    bit<8>  ttl;
    bit<8>  protocol;
    bit<16> checksum;
    bit<32> src;
    bit<32> dst;
}

struct headers_t {
    ethernet_t ethernet;
    vlan_t     vlan;
    ipv4_t     ipv4;
}

struct metadata_t {
    bit<12> vid;
    bit<32> next_hop;
}

#include "include/blocks.p4"

parser P(packet_in packet, out headers_t hdr, inout metadata_t meta,
         inout standard_metadata_t standard_metadata) {
    state start {
        packet.extract(hdr.ethernet);
        transition select(hdr.ethernet.type) {
            0x8100: vlan;
            0x0800: ipv4;
            default: accept;
        }
    }
    state vlan {
        packet.extract(hdr.vlan);
        meta.vid = hdr.vlan.vid;
        transition select(hdr.vlan.type) {
            0x0800: ipv4;
            default: accept;
        }
    }
    state ipv4 {
        packet.extract(hdr.ipv4);
        transition accept;
    }
}

control Route(inout headers_t hdr, inout metadata_t meta,
              inout standard_metadata_t standard_metadata) {
    direct_counter(CounterType.packets_and_bytes) routed;

    action drop() {
        mark_to_drop(standard_metadata);
    }
    action to_next_hop(bit<32> next_hop, bit<9> port) {
        meta.next_hop = next_hop;
        standard_metadata.egress_spec = port;
        hdr.ipv4.ttl = hdr.ipv4.ttl - 1;
    }
    action connected(bit<9> port) {
        to_next_hop(hdr.ipv4.dst, port);
    }
    action rewrite(bit<48> src, bit<48> dst) {
        hdr.ethernet.src = src;
        hdr.ethernet.dst = dst;
    }
    table routes {
        key = { hdr.ipv4.dst: lpm; }
        actions = { to_next_hop; connected; drop; }
        default_action = drop();
        counters = routed;
        size = 16;
    }
    table neighbours {
        key = { meta.next_hop: exact; }
        actions = { rewrite; drop; }
        default_action = drop();
    }
    apply {
        if (hdr.ipv4.ttl <= 1) {
            drop();
        } else if (routes.apply().hit) {
            neighbours.apply();
        }
    }
}

control C(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    Route() route;
    counter(4096, CounterType.packets) per_vlan;

    action forward(bit<9> port) {
        standard_metadata.egress_spec = port;
    }
    action flood(bit<16> group) {
        standard_metadata.mcast_grp = group;
    }
    table router_mac {
        key = { hdr.ethernet.dst: exact; }
        actions = { NoAction; }
    }
    table bridge {
        key = { meta.vid: exact; hdr.ethernet.dst: exact; }
        actions = { forward; flood; }
        default_action = flood(1);
    }
    apply {
        per_vlan.count((bit<32>)meta.vid);
        if (hdr.ipv4.isValid() && router_mac.apply().hit) {
            route.apply(hdr, meta, standard_metadata);
        } else {
            bridge.apply();
        }
    }
}

control E(inout headers_t hdr, inout metadata_t meta,
          inout standard_metadata_t standard_metadata) {
    action untag() {
        hdr.ethernet.type = hdr.vlan.type;
        hdr.vlan.setInvalid();
    }
    table access_ports {
        key = { standard_metadata.egress_port: exact; hdr.vlan.isValid(): exact; }
        actions = { untag; NoAction; }
        default_action = NoAction();
    }
    apply {
        if (standard_metadata.mcast_grp != 0 && standard_metadata.egress_port == standard_metadata.ingress_port) {
            mark_to_drop(standard_metadata);
        }
        access_ports.apply();
    }
}

control U(inout headers_t hdr, inout metadata_t meta) {
    apply {
        update_checksum(hdr.ipv4.isValid(),
            { hdr.ipv4.version, hdr.ipv4.ihl, hdr.ipv4.tos, hdr.ipv4.len, hdr.ipv4.id, hdr.ipv4.flags,
              hdr.ipv4.offset, hdr.ipv4.ttl, hdr.ipv4.protocol, hdr.ipv4.src, hdr.ipv4.dst },
            hdr.ipv4.checksum, HashAlgorithm.csum16);
    }
}

V1Switch(P(), NoChecksums(), C(), E(), U(), EmitAll()) main;

/* packets
group 1 1 2 3
add bridge 0 0x0a0000000002 => forward(2)
add bridge 7 0x0a0000000003 => forward(3)
add router_mac 0x0a00000000ff => NoAction()
add route.routes 0x0a010000/16 => connected(4)
add route.routes 0/0 => to_next_hop(0x0a010001, 5)
add route.neighbours 0x0a010001 => rewrite(0x0a00000000ff, 0x0b0000000001)
add route.neighbours 0x0a010105 => rewrite(0x0a00000000ff, 0x0b0000000005)
add access_ports 3 1 => untag()
let ip = 4500 0016 0000 0000 40 11 0000 0a000001
packet 1 0a0000000002 0a0000000001 0806 aabb
expect 2 0a00000000020a00000000010806aabb
packet 1 0a0000000009 0a0000000001 0806 aabb
expect 2 0a00000000090a00000000010806aabb
expect 3 0a00000000090a00000000010806aabb
packet 1 0a0000000003 0a0000000001 8100 2007 0806 aabb
expect 3 0a00000000030a00000000010806aabb
packet 2 0a0000000003 0a0000000001 8100 2008 0806 aabb
expect 1 0a00000000030a0000000001810020080806aabb
expect 3 0a00000000030a00000000010806aabb
packet 1 0a00000000ff 0a0000000001 0800 $ip 0a010105 aabb
expect 4 0b00000000050a00000000ff080045000016000000003f1166d10a0000010a010105aabb
packet 1 0a00000000ff 0a0000000001 0800 $ip 08080808 aabb
expect 5 0b00000000010a00000000ff080045000016000000003f1161c70a00000108080808aabb
packet 1 0a00000000ff 0a0000000001 0800 $ip 0a010109 aabb                     # no neighbour
expect nothing
packet 1 0a00000000ff 0a0000000001 0800 4500 0016 0000 0000 01 11 0000 0a000001 08080808 aabb
expect nothing
packet 1 0a00000000ff 0a0000000001 8100 0007 0800 $ip 0a010105 aabb
expect 4 0b00000000050a00000000ff81000007080045000016000000003f1166d10a0000010a010105aabb
packet 1 0a0000000002 0a0000000001 0800 $ip 0a010105 aabb                     # not for the router
expect 2 0a00000000020a000000000108004500001600000000401165d10a0000010a010105aabb
packet 1 0a0000000002 0a0000000001 08                                         # too short: no destination known
expect 2 0a00000000020a000000000108
expect 3 0a00000000020a000000000108
counter per_vlan 7 = 2 60
direct route.routes 0/0 = 1 36
*/
