#include "included.p4i"
