const int<1> N = 0s0;
