extern void send<T>(in T data);
control C(inout bit<8> x) {
    apply { send(7); }
}
