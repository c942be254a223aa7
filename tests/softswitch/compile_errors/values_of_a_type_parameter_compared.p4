bool equal<T>(in T a, in T b) {
    return a == b;
}
