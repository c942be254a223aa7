@pkginfo const bit<8> N = 1;
