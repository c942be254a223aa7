action a(bit<8> x, inout bit<8> y) {
    y = x;
}
