#include <core.p4>
#include "headers/tcp.p4"
