// rng: random numbers, as functions of a key and an index.

//@ rng()
// Random numbers as on the host (runtime/base/rng.h): functions of a key and an index, nothing is stored.
GA_DEVICE ga_uint64 ga_rng_mix(ga_uint64 z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}
GA_DEVICE ga_uint64 ga_rng_key(ga_uint64 seed, ga_uint64 stream) {
    return ga_rng_mix(ga_rng_mix(seed + 0x9e3779b97f4a7c15ull) ^ stream);
}
// The key whose number 0 is number `index` of this one.
GA_DEVICE ga_uint64 ga_rng_after(ga_uint64 key, ga_uint64 index) {
    return key + 0x9e3779b97f4a7c15ull * index;
}
GA_DEVICE ga_uint64 ga_rng_at(ga_uint64 key, ga_uint64 index) {
    return ga_rng_mix(ga_rng_after(key, index + 1));
}

// The stream of a name, found when the kernel is compiled.
GA_DEVICE constexpr ga_uint64 ga_rng_stream(const char *name) {
    ga_uint64 hash = 0xcbf29ce484222325ull;
    for (; *name; name++) hash = (hash ^ (ga_byte)*name) * 0x100000001b3ull;
    return hash;
}

// The key of one row of the cycle's global batch, for what is called `stream`.
GA_DEVICE ga_uint64 ga_draw_key(ga_uint64 seed, ga_uint64 stream, ga_uint64 iteration, ga_uint64 cycle,
                                ga_uint64 row) {
    const ga_uint64 name = ga_rng_at(ga_rng_key(seed, stream), iteration);
    return ga_rng_at(ga_rng_key(name, cycle), row);
}
