struct Pair<T> {
    T first;
    bit<8> first;
}
