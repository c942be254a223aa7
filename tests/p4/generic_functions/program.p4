// Functions with type parameters: given, or told by the arguments; each call has types of its own.
header h_t { bit<8> a; bit<8> b; bit<16> c; bit<16> d; }
struct headers_t { h_t h; }
struct metadata_t { }

#include "../../softswitch/features/include/one_header.p4"

struct Pair<T> { T first; T second; }

void swap<T>(inout T x, inout T y) {
    T kept = x;
    x = y;
    y = kept;
}

T chosen<T>(in bool first, in Pair<T> pair) {
    if (first) { return pair.first; }
    return pair.second;
}

T same<T>(in T x) { return x; }

control I(inout headers_t hdr, inout metadata_t meta, inout standard_metadata_t sm) {
    apply {
        Pair<bit<16>> pair = { hdr.h.c, hdr.h.d };
        swap(hdr.h.a, hdr.h.b);
        swap(hdr.h.c, hdr.h.d);
        hdr.h.c = hdr.h.c + chosen(hdr.h.a == 2, pair);
        sm.egress_spec = same<bit<9>>(3);
    }
}

V1Switch(P(), NoChecksums(), I(), PlainEgress(), NoChecksums(), EmitAll()) main;
