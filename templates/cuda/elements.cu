// elements: elements of memory as numbers, which may have 16 bits there.

//@ elements(half, type)
GA_DEVICE real ga_get(real x) {
    return x;
}
GA_DEVICE void ga_put(real &to, real x) {
    to = x;
}
//% if half then
GA_DEVICE real ga_get($half x) {
    return $(half)_widen(x);
}
GA_DEVICE void ga_put($half &to, real x) {
    to = $(half)_narrow(x);
}
//% end
