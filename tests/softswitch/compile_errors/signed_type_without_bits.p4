struct Pair {
    int<0> first;
}
