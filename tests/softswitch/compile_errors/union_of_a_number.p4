header_union one_of<T> { T it; }
extern log { log(list<one_of<bit<8>>> lines); }
