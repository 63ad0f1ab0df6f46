/* ga.h: what every part of the runtime shares: status, error text, element types, tensors, the
 * clock. No function of the runtime ends the process (but the watchdog) or allocates outside a
 * ga_arena. */
#ifndef GA_H
#define GA_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Result of every function that can fail; the exit code of the process is its negation. */
typedef enum ga_status {
    GA_OK = 0,
    GA_INPUT = -1,       /* the user's input, options or files */
    GA_BUG = -2,         /* a defect of gagen: plan and program disagree */
    GA_ENVIRONMENT = -3, /* disk, memory, peer, device */
    GA_NONFINITE = -4    /* training reached a value that is not finite */
} ga_status;

enum { GA_EXIT_STOPPED = 75 }; /* exit code after a stop on request */

typedef struct ga_err {
    int code; /* 0 or a ga_status */
    char msg[512];
} ga_err;

/* Fills e (NULL allowed; an earlier error is overwritten; control bytes become '?') and returns
 * status. */
int ga_fail(ga_err *e, ga_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns from the calling function with the negative code of call, if it has one. */
#define GA_TRY(call)                                                                               \
    do {                                                                                           \
        int ga_code_ = (call);                                                                     \
        if (ga_code_ < 0) return ga_code_;                                                         \
    } while (0)

typedef enum ga_dtype { GA_F32, GA_F64, GA_BF16, GA_F16, GA_I32, GA_I64, GA_U8 } ga_dtype;

size_t ga_dtype_bytes(ga_dtype t);
const char *ga_dtype_name(ga_dtype t); /* as safetensors spells it: "F32", "F64", "BF16", ... */

/* What becomes of the ranks' values, element by element. */
typedef enum ga_op { GA_SUM, GA_MEAN, GA_MAX, GA_MIN } ga_op;

typedef struct ga_tensor {
    const char *name;
    ga_dtype dtype;
    int rank; /* 0..6 */
    int64_t shape[6];
    void *data;
} ga_tensor;

/* Reads element i of base (F32, F64, BF16 or F16; every value is exact), or writes it, rounding to
 * the type (F32 or F64; BF16 from what it is as F32). */
double ga_get(const void *base, ga_dtype t, int64_t i);
void ga_set(void *base, ga_dtype t, int64_t i, double value);

/* Seconds of the monotonic clock. */
double ga_clock(void);

/* Opens /dev/null in the place of each standard stream that is closed: otherwise the next file
 * opened, a log or a checkpoint, would get the lines that are printed. */
void ga_open_streams(void);

/* One line to stderr in one write(2), at most 1,023 bytes; never fails, never allocates. */
void ga_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* A line on a terminal that is drawn again and again, on stderr: shows text (at most 500 bytes) in the
 * place of the line drawn before. NULL: the line stays, what comes is written below it. ga_say removes
 * the line; the next ga_draw brings it back. */
void ga_draw(const char *text);

/* Removes the drawn line, if there is one: something else is to be written. */
void ga_draw_clear(void);
bool ga_draw_shown(void);

#endif
