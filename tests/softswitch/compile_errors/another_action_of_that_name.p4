action one() { }
control C(inout bit<8> x) {
    action one() { x = 1; }
    table t {
        actions = { one; }
        default_action = .one();
    }
    apply { t.apply(); }
}
