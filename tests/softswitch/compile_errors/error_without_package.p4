const bit<8> N = true;
control C(inout bit<8> x) {
    apply { y = x; }
}
