control C(inout bit<8> x) {
    action one() { x = 1; }
    apply { one<bit<8>>(); }
}
