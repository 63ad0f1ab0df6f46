// fiber.cpp: the register switch, for x86-64 and aarch64.
#include "fiber.h"

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
asm(R"(
.text
.globl dev_switch
.type dev_switch,@function
dev_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp,(%rdi)
    mov %rsi,%rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
.size dev_switch,.-dev_switch
)");

void *device::fiber_start(char *top, void (*entry)()) {
    auto **at = (void **)((uintptr_t)top & ~(uintptr_t)63);
    *--at = nullptr;  // where entry would return to; also aligns the stack as a call does
    *--at = (void *)entry;
    for (int i = 0; i < 6; i++) *--at = nullptr;
    return at;
}

#elif defined(__aarch64__)
asm(R"(
.text
.globl dev_switch
.type dev_switch,%function
dev_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.size dev_switch,.-dev_switch
)");

void *device::fiber_start(char *top, void (*entry)()) {
    auto *at = (char *)((uintptr_t)top & ~(uintptr_t)63) - 160;
    memset(at, 0, 160);
    memcpy(at + 88, &entry, sizeof entry);  // x30: where the switch returns to
    return at;
}

#else
#error "the device library has no fiber switch for this processor"
#endif
