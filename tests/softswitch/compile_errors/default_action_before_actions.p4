control C(inout bit<8> x) {
    action one() { x = 1; }
    table t {
        default_action = one;
        actions = { one; }
    }
    apply { t.apply(); }
}
