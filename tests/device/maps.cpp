// maps.cpp: how the driver describes matrices to copies of boxes (TMA).
#include <cstring>

#include "device.h"

using namespace device;

extern "C" __attribute__((visibility("default"))) int
cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *base, const uint64_t *extents, const uint64_t *strides,
                       const unsigned *box, const unsigned *steps, int interleave, int swizzle, int, int fill) {
    MAY_FAIL(UNKNOWN);
    const bool known = (type == 6 || type == 9) && (rank == 2 || rank == 3) && !interleave && !fill;
    const uint64_t sheets = rank == 3 ? extents[2] : 1, sheet_bytes = rank == 3 ? strides[1] : 0;
    bool single = rank != 3 || box[2] == 1;
    for (unsigned axis = 0; known && axis < rank; axis++) single = single && steps[axis] == 1;
    if (!known || !single || (uintptr_t)map % 64 || (uintptr_t)base % 16 || strides[0] % 16 || strides[0] >> 40 ||
        sheet_bytes % 16 || sheet_bytes >> 40 || !sheets || sheets >> 32 || !extents[0] || !extents[1] ||
        extents[0] >> 32 || extents[1] >> 32 || !box[0] || !box[1] || box[0] > 256 || box[1] > 256 || box[0] % 8 ||
        (swizzle != 0 && swizzle != 3) || (swizzle == 3 && box[0] * 2 != 128) ||
        !contains((uintptr_t)base, (sheets - 1) * sheet_bytes + (extents[1] - 1) * strides[0] + extents[0] * 2)) {
        report("argument", "cuTensorMapEncodeTiled: no matrices of 16-bit elements, or a box that cannot be");
        return INVALID_VALUE;
    }
    const Map m = {(const char *)base, extents[0], extents[1], sheets, strides[0], sheet_bytes, box[0], box[1],
                   swizzle == 3, MAP_MAGIC};
    memset(map, 0, 128);
    memcpy(map, &m, sizeof m);
    return SUCCESS;
}
