extern queue { queue(); abstract bit<8> weight(); bit<8> length(); }
control C() {
    queue() q = { bit<8> weight() { return this.length() + this.size(); } };
    apply { }
}
