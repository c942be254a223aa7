#include <core.p4>
enum bit<8> colour_t { red = 1 }
control C() {
    action paint(tuple<bit<8>> colour) { }
    table t { actions = { paint; } default_action = paint(colour_t.red); }
    apply { t.apply(); }
}
