extern Hash<T> { Hash(); bit<16> get(in T data); }
control C(inout bit<16> x) {
    Hash<bit<8>>() h;
    apply { x = h.get(x); }
}
