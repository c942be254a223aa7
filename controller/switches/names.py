"""Control-plane names of ``p4src/*.p4`` that this package uses; a test compares them with the P4Info."""

JOB = "InaIngress.admission.job"
JOB_KEY = "hdr.ina.job"
SET_JOB = "InaIngress.admission.set_job"

CHANGE = "InaIngress.aggregator.addressing.change"
MOVE = "InaIngress.aggregator.addressing.move"
SETTLED = "InaIngress.aggregator.addressing.settled"
"""Only programs with shared slots have `CHANGE`, `MOVE` and `SETTLED`."""

MEMBER = "InaIngress.admission.member"
INGRESS_PORT = "standard_metadata.ingress_port"
SET_MEMBER = "InaIngress.admission.set_member"
SET_PARENT = "InaIngress.admission.set_parent"

UPLINK = "InaIngress.uplink.uplink"
SET_UPLINK = "InaIngress.uplink.set_uplink"

RECEIVER = "InaEgress.delivery.receiver"
REPLICA = "standard_metadata.egress_rid"
DELIVER = "InaEgress.delivery.deliver"
PASS_ON = "InaEgress.delivery.pass_on"

ECN = "InaEgress.marking.threshold"
SET_ECN = "InaEgress.marking.set_threshold"

OUTCOMES = "InaIngress.outcomes"

LANE_WORK = "InaIngress.aggregator.lane_work.lane_work"
"""Only programs that take contributions without lanes have this table."""

SLOT_REGISTER = "InaIngress.aggregator.slot_psn"
JOB_REGISTER = "InaIngress.aggregator.slot_job"
PRIORITY_REGISTER = "InaIngress.aggregator.slot_priority"
SALT_REGISTER = "InaIngress.aggregator.slot_salt"
"""Only some programs have the registers for jobs, priorities and salts: see `capabilities`."""
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
