const bit<8> A = (1 + 2;
