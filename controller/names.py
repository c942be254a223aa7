"""Control-plane names of ``p4src/exclusive.p4`` that this package uses; a test holds them to its P4Info."""

JOB = "InaIngress.admission.job"
JOB_KEY = "hdr.ina.job"
SET_JOB = "InaIngress.admission.set_job"

MEMBER = "InaIngress.admission.member"
INGRESS_PORT = "standard_metadata.ingress_port"
SET_MEMBER = "InaIngress.admission.set_member"

RECEIVER = "InaEgress.delivery.receiver"
REPLICA = "standard_metadata.egress_rid"
DELIVER = "InaEgress.delivery.deliver"

OUTCOMES = "InaIngress.outcomes"

SLOT_REGISTER = "InaIngress.aggregator.slot_psn"
LANE_REGISTERS = "InaIngress.aggregator.lanes.lane_"

BRIDGE = "InaIngress.forwarding.bridge"
BRIDGE_KEY = "hdr.ethernet.dst"
FORWARD = "InaIngress.forwarding.forward"
FLOOD = "InaIngress.forwarding.flood"

OWN_ADDRESS = "InaIngress.forwarding.own_address"
OWN_ADDRESS_KEY = "hdr.arp.target_ip"
ARP_REPLY = "InaIngress.forwarding.arp_reply"

OWN_MAC = "InaIngress.forwarding.own_mac"
OWN_MAC_KEY = "hdr.ethernet.dst"

ROUTES = "InaIngress.forwarding.routes"
ROUTES_KEY = "hdr.ipv4.dst"
ROUTE = "InaIngress.forwarding.route"

NO_ACTION = "NoAction"
