// hopper_compare: what a start compares a kernel and its twin with (runtime/device/twins.h).

//@ compare(type, half)
/* Element i of an array of 16-bit numbers, or of f32. */
GA_DEVICE float ga_number(const void *x, int half, ga_int64 i) {
    return half ? $(half)_widen((($type *)x)[i]) : ((const float *)x)[i];
}

/* Fills an array with numbers from -1 to 1. */
GA_KERNEL(256) made_up(void *to, int half, ga_int64 n, int seed) {
#pragma unroll 1
    for (ga_int64 i = ga_thread_first(); i < n; i += ga_thread_count()) {
        ga_uint32 bits = (ga_uint32)i * 2654435761u + (ga_uint32)seed * 2246822519u + 374761393u;
        bits = (bits ^ bits >> 15) * 2246822519u;
        bits = (bits ^ bits >> 13) * 3266489917u;
        const float x = (float)(int)(bits ^ bits >> 16) * 0x1p-31f;
        if (half)
            (($type *)to)[i] = $(half)_narrow(x);
        else
            ((float *)to)[i] = x;
    }
}

/* found[0]: the bits of the greatest magnitude. */
GA_KERNEL(256) greatest(ga_uint32 *found, const void *x, int half, ga_int64 n) {
    ga_uint32 most = 0;
#pragma unroll 1
    for (ga_int64 i = ga_thread_first(); i < n; i += ga_thread_count()) {
        const ga_uint32 bits = __float_as_uint(ga_number(x, half, i)) & 0x7fffffff;
        most = bits > most ? bits : most;
    }
    atomicMax(found, most);
}

/* found[1]: how many elements are further apart than `least` of the greatest one and `step` of their own size. */
GA_KERNEL(256) different(ga_uint32 *found, const void *x, const void *y, int half, ga_int64 n, float least,
                       float step) {
    const float apart = __uint_as_float(found[0]) * least;
    ga_uint32 count = 0;
#pragma unroll 1
    for (ga_int64 i = ga_thread_first(); i < n; i += ga_thread_count()) {
        const float a = ga_number(x, half, i), b = ga_number(y, half, i);
        count += !(a == b || fabsf(a - b) <= apart + step * fabsf(a));
    }
    if (count > 0) atomicAdd(found + 1, count);
}
