header h_t {
    bit<8> a;  /* the rest
}
