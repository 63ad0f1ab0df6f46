// image.h: the format that nvrtc.cpp makes, and the driver loads, in the place of a cubin.
#pragma once
#include <cstdint>

namespace device {

constexpr char IMAGE_MAGIC[8] = {'d', 'e', 'v', 'i', 'm', 'a', 'g', '1'};
struct Image {  // followed by the bytes of a shared library
    char magic[8];
    uint64_t stamp, bytes;
    int32_t cuda, pad;  // the CUDA that it was made for, 13 = 13.x
};

// Hash of this library, shim.h and the checker's switch: cached images with another hash are refused.
uint64_t image_stamp();

}  // namespace device
