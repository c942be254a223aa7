extern Sum {
    void add(bit<8> x);
    void add(bit<16> x);
}
