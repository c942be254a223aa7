#include <core.p4>
@size(4) @size[] header h_t { bit<8> x; }
