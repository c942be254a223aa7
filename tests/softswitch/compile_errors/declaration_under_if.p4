control C(inout bit<8> x) {
    apply {
        if (x == 1)
            bit<8> y = 2;
    }
}
