extern void random<T>(out T drawn, in T low);
control C() {
    bool coin;
    apply { random(coin, 0); }
}
