extern Sum {
    Sum();
    add(bit<8> x);
}
