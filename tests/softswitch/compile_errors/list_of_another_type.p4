extern log { log(list<tuple<bit<8>, bool>> lines); }
control C() {
    log({ { 1, true }, { 2, 3 } }) l;
    apply { }
}
