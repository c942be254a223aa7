// The arithmetic of Tofino's externs: the compiler inlines these functions where a program calls an extern.
// A program does not include this file.

// Move the average of a filter towards `target`: by `gain` * 2**-48 of the distance for each ns since the last
// update, and at most by the whole distance. This is the first-order approximation of the chip's exponential.
void approach(inout bit<64> average, inout bit<64> last, in bit<48> clock, in bit<64> target, in bit<64> gain) {
    bit<128> part = (bit<128>)(((bit<64>)clock - last) & 0xffffffffffff) * (bit<128>)gain;
    if (part > 1 << 48) {
        part = 1 << 48;
    }
    last = (bit<64>)clock;
    if (target >= average) {
        average = average + (bit<64>)((bit<128>)(target - average) * part >> 48);
    } else {
        average = average - (bit<64>)((bit<128>)(average - target) * part >> 48);
    }
}

// Lpf and Wred: the parameters from the third on are the filter's registers, except for `drawn`. `value` and
// `average` have 16 fraction bits.

bit<64> Lpf(in bit<64> value, in bit<48> clock, in bit<64> rise, in bit<64> fall, in bit<1> rate, in bit<8> shift,
            inout bit<64> average, inout bit<64> last) {
    if (rate == 1) {
        approach(average, last, clock, 0, fall);
        average = average + value;
    } else {
        approach(average, last, clock, value, value > average ? rise : fall);
    }
    return rise == 0 ? value >> 16 : average >> 16 >> shift;
}

bool Wred(in bit<64> value, in bit<48> clock, in bit<64> gain, in bit<32> low, in bit<32> high, in bit<32> slope,
          inout bit<64> average, inout bit<64> last, in bit<32> drawn) {
    approach(average, last, clock, value, gain);
    bit<64> whole = average >> 16;
    bool some = whole > (bit<64>)low && (bit<128>)drawn < (bit<128>)(whole - (bit<64>)low) * (bit<128>)slope;
    return gain != 0 && (whole >= (bit<64>)high || some);
}

// `entries` has 16 bytes, the first one lowest. `scale` and `exponent` are in two's complement. For a root, the
// exponent must be even.
bit<64> MathUnit(in bit<32> x, in bit<128> entries, in bool invert, in bool squares, in bool roots, in bit<8> scale) {
    bit<32> i = x;
    bit<8> exponent = 31;
    if (i < 1 << 16) { i = i << 16; exponent = exponent - 16; }
    if (i < 1 << 24) { i = i << 8; exponent = exponent - 8; }
    if (i < 1 << 28) { i = i << 4; exponent = exponent - 4; }
    if (i < 1 << 30) { i = i << 2; exponent = exponent - 2; }
    if (i < 1 << 31) { i = i << 1; exponent = exponent - 1; }
    i = i >> 28;
    if (roots && exponent[0:0] == 1) { i = i >> 1; exponent = exponent + 1; }
    bit<8> power = squares ? exponent << 1 : roots ? exponent >> 1 : exponent;
    bit<8> shift = (invert ? 0 - power : power) + scale;
    bit<64> entry = (bit<64>)(entries >> (i << 3))[7:0];
    return shift >= 128 ? entry >> (0 - shift) : entry << shift;
}

// ParserCounter.set from a field: the rotated field, masked, plus `add`, but at most `maximum`.
int<9> counter_of_field(in bit<8> field, in bit<8> maximum, in bit<8> rotate, in bit<8> ones, in bit<8> add) {
    bit<8> turned = field >> rotate | field << 8 - rotate;
    int<9> total = (int<9>)(bit<9>)(turned & ones) + (int<9>)(bit<9>)add;
    int<9> most = (int<9>)(bit<9>)maximum;
    return total > most ? most : total;
}
