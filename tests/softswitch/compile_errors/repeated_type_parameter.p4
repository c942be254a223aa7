parser P<T, T>(in T value);
