void set(in bit<8> low) { }
void set(in bit<8> high) { }
void both() { set(high = 1); set(1); }
