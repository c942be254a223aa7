#define LANES 33
#if LANES != 32
#  error "LANES must be 32"
#endif
