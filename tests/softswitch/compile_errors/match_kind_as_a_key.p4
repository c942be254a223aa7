#include <core.p4>
control C(in bit<8> x) {
    match_kind how = exact;
    table t { key = { how: exact; } actions = { NoAction; } }
    apply { t.apply(); }
}
