T first<T>(in T a, in T b) { return a; }
control C(inout bit<8> x, in bit<16> y) {
    apply { x = first(x, y); }
}
