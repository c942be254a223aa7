#if LANES == == 32
#endif
