#include <psa.p4>
