"""The part of a random program that is always the same: what its statements call."""

LIBRARY = """\
enum bit<8> Code { A = 1, B = 7 }

enum Colour { Red, Green, Blue }

struct part_t {
    bit<8> x;
    bool   y;
    Colour colour;
}

action shuffle(inout bit<16> x, in bit<16> y, out bit<16> z) {
    x = x + y;
    z = x ^ y;
    x = x - 1;
}

bit<16> larger(in bit<16> x, in bit<16> y) {
    if (x > y) {
        return x;
    }
    return y;
}

bit<16> bump(inout bit<16> x) {
    x = x + 3;
    return x - 1;
}
"""
SUBCONTROL = """\
control Sub(inout bit<16> x, in bit<8> y, out bool z)(bit<16> step) {
    register<bit<16>>(4) seen;
    action add(bit<16> amount) {
        x = x + amount;
    }
    action stop() {
        exit;
    }
    table t {
        key = { y: exact; z: exact; x: ternary; }
        actions = { add; stop; NoAction; }
        default_action = add(step);
    }
    apply {
        bit<16> before;
        seen.read(before, (bit<32>)y);
        seen.write((bit<32>)y, x);
        z = before == x;
        if (before == 7) {
            return;
        }
        t.apply();
        x = x ^ before;
    }
}
"""
