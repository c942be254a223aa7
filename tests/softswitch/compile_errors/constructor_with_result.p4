extern Sum {
    Sum();
    bit<8> Sum(bit<8> start);
}
