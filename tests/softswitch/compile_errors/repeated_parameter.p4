control C(inout bit<8> x)(bit<8> x) {
    apply { }
}
