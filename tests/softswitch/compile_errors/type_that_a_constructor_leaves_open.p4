extern store<K, V> { store(K size); V get(in K key); }
control C() {
    store(8w4) values;
    apply { }
}
