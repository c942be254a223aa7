bit<8> first<T>(in T a, in bit<8> b) {
    T copy = a;
    return copy.size + b;
}
