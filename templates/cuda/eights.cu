// eights: eight neighbours at once. Of n < 8 the others are left alone; with ALL there are eight or more, at a multiple
// of 16 bytes.

//@ eights(type, half)
template <bool ALL> GA_DEVICE void ga_add8(float (&v)[8], const float *from, int n) {
    if (ALL) {
        const float4 low = ((const float4 *)from)[0], high = ((const float4 *)from)[1];
        v[0] += low.x, v[1] += low.y, v[2] += low.z, v[3] += low.w;
        v[4] += high.x, v[5] += high.y, v[6] += high.z, v[7] += high.w;
        return;
    }
#pragma unroll
    for (int e = 0; e < 8; e++)
        if (e < n) v[e] += from[e];
}

GA_DEVICE void ga_add_pair(float *v, ga_uint32 pair) {
    v[0] += $(half)_widen({(unsigned short)(pair & 0xffff)});
    v[1] += $(half)_widen({(unsigned short)(pair >> 16)});
}

template <bool ALL> GA_DEVICE void ga_add8(float (&v)[8], const $type *from, int n) {
    if (ALL) {
        const uint4 pairs = *(const uint4 *)from;
        ga_add_pair(v, pairs.x), ga_add_pair(v + 2, pairs.y), ga_add_pair(v + 4, pairs.z), ga_add_pair(v + 6, pairs.w);
        return;
    }
#pragma unroll
    for (int e = 0; e < 8; e++)
        if (e < n) v[e] += $(half)_widen(from[e]);
}

template <bool ALL> GA_DEVICE void ga_put8(float *to, const float (&v)[8], int n) {
    if (ALL) {
        __stwb((float4 *)to, make_float4(v[0], v[1], v[2], v[3]));
        __stwb((float4 *)to + 1, make_float4(v[4], v[5], v[6], v[7]));
        return;
    }
#pragma unroll
    for (int e = 0; e < 8; e++)
        if (e < n) to[e] = v[e];
}

template <bool ALL> GA_DEVICE void ga_put8($type *to, const float (&v)[8], int n) {
    if (ALL) {
        __stwb((uint4 *)to, make_uint4(ga_narrow_pair(v[0], v[1]), ga_narrow_pair(v[2], v[3]),
                                       ga_narrow_pair(v[4], v[5]), ga_narrow_pair(v[6], v[7])));
        return;
    }
#pragma unroll
    for (int e = 0; e < 8; e++)
        if (e < n) to[e] = $(half)_narrow(v[e]);
}
