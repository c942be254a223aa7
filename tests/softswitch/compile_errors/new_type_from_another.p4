type bit<1> t1;
type bit<2> t2;
t1 f(t2 a) {
    return (t1)a;
}
