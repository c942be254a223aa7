/* For loops over lanes. */
#ifndef INA_VECTOR_H
#define INA_VECTOR_H

/* One build runs on every machine: the loader picks the variant that the processor can do. */
#if defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__) && __GNUC__ >= 12
#define VECTORIZED __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#elif defined(__x86_64__) && defined(__GLIBC__) && !defined(__clang__)
#define VECTORIZED __attribute__((target_clones("avx2", "default")))
#else
#define VECTORIZED
#endif

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define BIG32(x) __builtin_bswap32(x)
#else
#define BIG32(x) (x)
#endif

#endif
