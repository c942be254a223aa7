#include <core.p4>
header h_t { bit<8> x; }
header g_t { bit<8> x; }
parser P(packet_in packet, out h_t h) {
    state start { packet.extract<g_t>(h); transition accept; }
}
