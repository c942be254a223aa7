extern Hash { Hash(bit<8> seed); bit<16> get(in bit<8> data); }
control C(inout bit<16> x) {
    Hash() h;
    apply { x = h.get(1); }
}
