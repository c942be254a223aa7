control Inner(in bit<8> x);
control Outer(in bit<16> y)(Inner inner) {
    apply { inner.apply(y); }
}
