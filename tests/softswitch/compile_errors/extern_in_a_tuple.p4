extern Log { Log(); void add(bit<8> x); }
struct Pair {
    tuple<bit<8>, Log> both;
}
