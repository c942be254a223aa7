control C(inout int<8> x, in bit<0> none) {
    apply { x = (int<8>)none; }
}
