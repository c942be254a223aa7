// For programs that include the parts of t2na.p4.
#ifndef __TARGET_TOFINO__
#define __TARGET_TOFINO__ 2
#endif
#include "tofino_base.p4"
