extern chain { chain(); void join(in bit<8> at, chain other); }
