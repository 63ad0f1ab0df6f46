// narrow_between: stochastic rounding to 16 bits.

//@ narrow_between()
/* One of the two bf16 around x. `drawn` is a number below 2^16: the closer x is to the one further from 0, the more of
 * them choose it. Beyond the greatest bf16 is infinity; a NaN stays a NaN. */
GA_DEVICE bf16 bf16_narrow_between(float x, ga_uint32 drawn) {
    const ga_uint32 bits = __float_as_uint(x);
    const ga_uint32 out = (bits & 0x7fffffff) > 0x7f800000 ? bits | 0x400000 : bits + drawn;
    return {(unsigned short)(out >> 16)};
}

