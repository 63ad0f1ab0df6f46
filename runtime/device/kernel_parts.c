/* kernel_parts.c: a text of kernels cut into parts that are compiled side by side. A part has all functions of the
 * text, which cost little until a kernel calls them, and its share of the kernels, on the lines that they have in the
 * text. */
#include "device/device_private.h"

#include <stdlib.h>
#include <string.h>

enum { KERNELS_OF_A_PART = 8, PARTS = 8 };

/* As templates/cuda begins a kernel and ends it. A kernel that copies boxes has blocks of 384 threads; other products
 * and attention have shared memory of a size that their launch gives. */
static const char BEGIN[] = "\nGA_KERNEL(", END[] = "\n}\n";
static const char BOXES[] = "\nGA_KERNEL(384", SHARED[] = "extern __shared__";

typedef struct kernel {
    size_t from, to; /* its characters of the text */
    int cost, part;
} kernel;

int ga_kernel_parts(const char *text) {
    const char *wanted = getenv("GAGEN_KERNEL_PARTS");
    const long number = wanted ? strtol(wanted, NULL, 10) : 0;
    int kernels = 0, parts = 1;
    if (number > 0) return number < GA_KERNEL_PARTS_MAX ? (int)number : GA_KERNEL_PARTS_MAX;
    for (const char *at = text; (at = strstr(at, BEGIN)); at++) kernels++;
    while (parts < PARTS && kernels >= 2 * parts * KERNELS_OF_A_PART) parts *= 2; /* cores come in powers of 2, too */
    return parts;
}

/* About how many milliseconds a core takes for a kernel: its functions take most of them, and have no lines of it. */
static int cost_of(const char *from, const char *to) {
    const char *shared = strstr(from, SHARED);
    int cost = strncmp(from, BOXES, sizeof BOXES - 1) == 0 ? 350 : shared && shared < to ? 150 : 20;
    for (const char *at = from; at < to; at++) cost += *at == '\n';
    return cost;
}

/* Finds the kernels of a text; returns their number. */
static int find(kernel *list, const char *text) {
    int count = 0;
    for (const char *at = text, *end; (at = strstr(at, BEGIN)) && (end = strstr(at, END)); at = end) {
        end += sizeof END - 2; /* the end of a line may be the begin of the next kernel */
        list[count++] = (kernel){(size_t)(at - text), (size_t)(end + 1 - text), cost_of(at, end), -1};
    }
    return count;
}

/* Gives each kernel a part: the costliest one that has none to the part that costs the least so far. */
static void deal(kernel *list, int count, int parts) {
    int cost[GA_KERNEL_PARTS_MAX] = {0};
    for (int dealt = 0; dealt < count; dealt++) {
        kernel *next = NULL;
        int least = 0;
        for (int i = 0; i < count; i++)
            if (list[i].part < 0 && (!next || list[i].cost > next->cost)) next = &list[i];
        for (int p = 1; p < parts; p++)
            if (cost[p] < cost[least]) least = p;
        next->part = least;
        cost[least] += next->cost;
    }
}

char *ga_kernel_part(const char *text, size_t bytes, int part, int parts) {
    int kernels = 1;
    for (const char *at = text; (at = strstr(at, BEGIN)); at++) kernels++;
    char *copy = malloc(bytes + 1);
    kernel *list = malloc(sizeof *list * (size_t)kernels);
    if (copy && list) {
        memcpy(copy, text, bytes);
        copy[bytes] = 0;
        const int count = find(list, copy);
        deal(list, count, parts);
        for (int i = 0; i < count; i++)
            for (size_t k = list[i].from; k < list[i].to && list[i].part != part; k++)
                if (copy[k] != '\n') copy[k] = ' ';
    } else {
        free(copy);
        copy = NULL;
    }
    free(list);
    return copy;
}
