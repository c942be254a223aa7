// Sizes and constants of every switch program, each with its reason.
#ifndef INA_CONFIG_P4
#define INA_CONFIG_P4

// Values per packet, fixed when the program is built (-DLANES=32|64|256).
// 256 lanes fill a 1 KiB payload; 32 lanes keep BMv2 builds small.
#ifndef LANES
#define LANES 256
#endif

// Aggregator slots of the whole switch: 256 lanes x 4 B x 8192 = 8 MiB of values.
#ifndef SLOTS
#define SLOTS 8192
#endif

// Jobs with counters of their own; counter row 0 is for packets of no job.
#define JOB_ROWS 256

// Children of one switch: the width of the contribution bitmap.
#define MAX_FAN_IN 32

// Queue depth, in packets, at which a port counts as congested: about the 80 kB at which ATP
// marks. The control plane can set another depth.
#ifndef ECN_DEPTH
#define ECN_DEPTH 64
#endif

// The spread of a shared job's PSNs over its region (location.p4).
#define CONSECUTIVE 0
#define HASHED      1
#define SALTED      2
#ifndef ADDRESSING
#define ADDRESSING CONSECUTIVE
#endif

const bit<16> TYPE_IPV4 = 0x0800;
const bit<16> TYPE_ARP  = 0x0806;
const bit<8>  PROTO_UDP = 17;

const bit<16> INA_UDP_PORT = 42592;
const bit<4>  INA_VERSION  = 2;

// Lengths in bytes, for the fields that carry them.
const bit<16> ETHERNET_BYTES = 14;
const bit<16> IPV4_BYTES = 20;
const bit<16> UDP_BYTES  = 8;
const bit<16> INA_BYTES  = 28;
const bit<16> LANE_BYTES = 4 * LANES;

#endif
