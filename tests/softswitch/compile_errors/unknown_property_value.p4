control C(inout bit<8> x) {
    table t {
        actions { NoAction; }
    }
    apply { t.apply(); }
}
