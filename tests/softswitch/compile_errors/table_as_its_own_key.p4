#include <core.p4>
control C(in bit<8> route) {
    table route { key = { route: exact; } actions = { NoAction; } }
    apply { }
}
