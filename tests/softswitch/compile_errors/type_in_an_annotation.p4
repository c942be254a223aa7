struct s_t { bit<8> x; }
@size[bytes = s_t] header h_t { bit<8> x; }
