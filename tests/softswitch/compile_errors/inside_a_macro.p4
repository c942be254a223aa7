#define CHECK(x) if (x == ) { x = 1; }
control C(inout bit<8> x) {
    apply {
        x = 0; CHECK(x) x = 3;
    }
}
