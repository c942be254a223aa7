extern Meter { Meter(); void run(bit<8> x); }
control C(inout Meter m) {
    apply { m.run(1); }
}
