const bit<8> A = 8w0x_;
