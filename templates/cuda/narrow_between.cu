// narrow_between: rounding to 16 bits by what is drawn.

//@ narrow_between()
/* One of the two bf16 around x: the one further from 0 if `drawn`, one of 2^16 numbers, is among as many of them as
 * x has gone of the way there; beyond the greatest infinity; a NaN stays one. */
GA_DEVICE bf16 bf16_narrow_between(float x, ga_uint32 drawn) {
    const ga_uint32 bits = __float_as_uint(x);
    const ga_uint32 out = (bits & 0x7fffffff) > 0x7f800000 ? bits | 0x400000 : bits + drawn;
    return {(unsigned short)(out >> 16)};
}

