extern Log { Log(); void add(bit<8> x); }
action a(Log log) {
    log.add(1);
}
