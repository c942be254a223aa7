extern gauge { gauge(); void run(in bit<8> cell); void run(in bit<8> port); }
control C() {
    gauge() m;
    apply { m.run(port = 1); m.run(1); }
}
