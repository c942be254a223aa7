extern log { log(list<bool> lines = ...); }
