action a(inout bit<8> x) {
    x = x / -1;
}
