#include <core.p4>
parser P(packet_in b) {
    state start { transition accept; }
    bit<8> x;
}
