const bit<8> A = 3 $ 4;
