// The lanes of the slots, as many as the program is built for.
#ifndef INA_LANES_CONTROL_P4
#define INA_LANES_CONTROL_P4

#if LANES == 32
#include "lanes_32.p4"
#elif LANES == 64
#include "lanes_64.p4"
#else
#include "lanes_256.p4"
#endif

#endif
