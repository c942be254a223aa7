// atp.p4 with sizes that any target has room for.
#define LANES 32
#define SLOTS 64
#include "../../../p4src/atp.p4"
