// fiber.h: a second stack to run on. Switching costs some fifteen instructions.
#pragma once
#include <cstddef>

namespace device {

// Saves the registers that a call preserves and the stack pointer in *save, goes on with `to`.
extern "C" void dev_switch(void **save, void *to);

// A stack pointer that, switched to, calls entry() with a fresh stack that ends at `top`.
void *fiber_start(char *top, void (*entry)());

}  // namespace device
