// EVERY_LANE(each): expands to each(0) ... each(LANES - 1), as P4 has no loops over registers.
#ifndef INA_EACH_LANE_P4
#define INA_EACH_LANE_P4

// The ten lanes whose numbers begin with the digits `tens`.
#define TEN_LANES(each, tens) \
    each(tens##0) each(tens##1) each(tens##2) each(tens##3) each(tens##4) \
    each(tens##5) each(tens##6) each(tens##7) each(tens##8) each(tens##9)

#if LANES == 32
#define EVERY_LANE(each) \
    TEN_LANES(each, ) TEN_LANES(each, 1) TEN_LANES(each, 2) each(30) each(31)
#elif LANES == 64
#define EVERY_LANE(each) \
    TEN_LANES(each, ) TEN_LANES(each, 1) TEN_LANES(each, 2) TEN_LANES(each, 3) \
    TEN_LANES(each, 4) TEN_LANES(each, 5) each(60) each(61) each(62) each(63)
#elif LANES == 256
#define EVERY_LANE(each) \
    TEN_LANES(each, ) TEN_LANES(each, 1) TEN_LANES(each, 2) TEN_LANES(each, 3) TEN_LANES(each, 4) \
    TEN_LANES(each, 5) TEN_LANES(each, 6) TEN_LANES(each, 7) TEN_LANES(each, 8) TEN_LANES(each, 9) \
    TEN_LANES(each, 10) TEN_LANES(each, 11) TEN_LANES(each, 12) TEN_LANES(each, 13) TEN_LANES(each, 14) \
    TEN_LANES(each, 15) TEN_LANES(each, 16) TEN_LANES(each, 17) TEN_LANES(each, 18) TEN_LANES(each, 19) \
    TEN_LANES(each, 20) TEN_LANES(each, 21) TEN_LANES(each, 22) TEN_LANES(each, 23) TEN_LANES(each, 24) \
    each(250) each(251) each(252) each(253) each(254) each(255)
#else
#error "LANES must be 32, 64 or 256"
#endif

#endif
