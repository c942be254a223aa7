extern void f(@optional in bit<8> x = 1);
