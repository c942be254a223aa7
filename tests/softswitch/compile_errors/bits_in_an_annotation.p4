const int SIZE = 4;
header h_t { @at[word = SIZE + 1, byte = 8w3] bit<8> x; }
