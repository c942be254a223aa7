control C(inout bit<8> x) {
    table t {
        key = { x: exact; }
        key = { x: ternary; }
    }
    apply { t.apply(); }
}
