// For programs that include the parts of tna.p4.
#ifndef __TARGET_TOFINO__
#define __TARGET_TOFINO__ 1
#endif
#include "tofino_base.p4"
