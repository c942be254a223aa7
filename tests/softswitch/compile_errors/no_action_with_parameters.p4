action NoAction(bit<8> x) {
}
control c() {
    table t {
        actions = {}
    }
    apply {
        t.apply();
    }
}
