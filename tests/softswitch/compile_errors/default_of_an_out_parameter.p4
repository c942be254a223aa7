action a(out bit<8> x = 3) {
    x = 1;
}
