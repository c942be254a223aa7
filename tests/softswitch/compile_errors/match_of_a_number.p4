#include <core.p4>
struct route_t { @match(lpm) bit<32> address; @match(2) bit<8> port; }
