#include <core.p4>
@size[bytes={4, 8}] header h_t { bit<8> x; }
