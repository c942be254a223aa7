#include <core.p4>
header h_t { bit<8> x; }
control D(packet_out packet, in h_t h) {
    apply { packet.emit<bit<8>>(h); }
}
