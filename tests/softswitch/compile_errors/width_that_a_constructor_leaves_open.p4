extern cell<V> { cell(V start); V get(); }
control C() {
    cell(4) counted;
    apply { }
}
