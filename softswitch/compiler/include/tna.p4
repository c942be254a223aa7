// The Tofino native architecture, or, with __TARGET_TOFINO__ 2, its blocks with Tofino 2's widths.
#ifndef _TNA_P4_
#define _TNA_P4_

#ifndef __TARGET_TOFINO__
#define __TARGET_TOFINO__ 1
#endif
#if __TARGET_TOFINO__ != 1 && __TARGET_TOFINO__ != 2
#error "tna.p4 is for __TARGET_TOFINO__ 1 or 2"
#endif

#include "tofino_base.p4"
#include "tofino_blocks.p4"

#endif
