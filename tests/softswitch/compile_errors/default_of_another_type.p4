extern void f(in bit<8> x = true);
