struct s_t { bit<8> a; bit<8> b; }
const s_t S = { a = 1, 2 };
