// The architecture of Tofino 2.
#ifndef _T2NA_P4_
#define _T2NA_P4_

#ifndef __TARGET_TOFINO__
#define __TARGET_TOFINO__ 2
#endif
#if __TARGET_TOFINO__ != 2
#error "t2na.p4 is for __TARGET_TOFINO__ 2"
#endif

#include "tofino_base.p4"
#include "tofino_blocks.p4"

#endif
