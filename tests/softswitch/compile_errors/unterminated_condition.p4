header h_t { bit<8> a; }
#ifdef LANES
header i_t { bit<8> a; }
