T first<T>(in T a, in T b) { return a; }
control C(inout bit<8> x) {
    apply { first(1, 2); }
}
