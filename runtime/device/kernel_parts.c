/* kernel_parts.c: a text of kernels cut into parts that are compiled side by side. A part has all functions of the
 * text, which cost little until a kernel calls them, and every so many kernels, on the lines that they have in the
 * text. */
#include "device/device_private.h"

#include <stdlib.h>
#include <string.h>

enum { KERNELS_OF_A_PART = 8, PARTS = 8 };

/* As templates/cuda begins a kernel and ends it. */
static const char BEGIN[] = "\nGA_KERNEL(", END[] = "\n}\n";

int ga_kernel_parts(const char *text) {
    const char *wanted = getenv("GAGEN_KERNEL_PARTS");
    const long number = wanted ? strtol(wanted, NULL, 10) : 0;
    int kernels = 0;
    if (number > 0) return number < GA_KERNEL_PARTS_MAX ? (int)number : GA_KERNEL_PARTS_MAX;
    for (const char *at = text; (at = strstr(at, BEGIN)); at++) kernels++;
    const int parts = kernels / KERNELS_OF_A_PART;
    return parts < 1 ? 1 : parts < PARTS ? parts : PARTS;
}

/* Makes everything before `end` blank but the ends of lines. */
static void blank(char *from, const char *end) {
    for (char *at = from; at < end; at++)
        if (*at != '\n') *at = ' ';
}

char *ga_kernel_part(const char *text, size_t bytes, int part, int parts) {
    char *copy = malloc(bytes + 1), *at = copy;
    if (!copy) return NULL;
    memcpy(copy, text, bytes);
    copy[bytes] = 0;
    /* in turn, since neighbours are alike: products stand together, and take the most time; each round begins with
     * another part, since every second kernel may be a longer one */
    for (int kernel = 0; (at = strstr(at, BEGIN)); kernel++) {
        char *end = strstr(at, END);
        if (!end) break;
        if ((kernel + kernel / parts) % parts != part) blank(at, end + sizeof END - 1);
        at = end + sizeof END - 2; /* the end of a line may be the begin of the next kernel */
    }
    return copy;
}
