/* ga.h: shared by every part of the runtime: status codes, error texts, element types, tensors, the
 * clock. No function of the runtime allocates outside a ga_arena; only the pulse ends the
 * process. */
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

/* Fills e and returns status. NULL is allowed; an earlier error is overwritten; control bytes become
 * '?'. */
int ga_fail(ga_err *e, ga_status status, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Returns the code of `call` from the calling function if the code is negative. */
#define GA_TRY(call)                                                                               \
    do {                                                                                           \
        int ga_code_ = (call);                                                                     \
        if (ga_code_ < 0) return ga_code_;                                                         \
    } while (0)

typedef enum ga_dtype { GA_F32, GA_F64, GA_BF16, GA_F16, GA_I32, GA_I64, GA_U8 } ga_dtype;

size_t ga_dtype_bytes(ga_dtype t);
const char *ga_dtype_name(ga_dtype t); /* name in safetensors files: "F32", "F64", "BF16", ... */

/* Elementwise reduction over the ranks. */
typedef enum ga_op { GA_SUM, GA_MEAN, GA_MAX, GA_MIN } ga_op;

typedef struct ga_tensor {
    const char *name;
    ga_dtype dtype;
    int rank; /* 0..6 */
    int64_t shape[6];
    void *data;
} ga_tensor;

/* ga_get reads element i of base (F32, F64, BF16 or F16) exactly. ga_set writes it, rounded to the
 * type (F32, F64 or BF16; for BF16 rounded to F32 first). */
double ga_get(const void *base, ga_dtype t, int64_t i);
void ga_set(void *base, ga_dtype t, int64_t i, double value);

/* Seconds of the monotonic clock. */
double ga_clock(void);

/* Opens /dev/null for each standard stream that is closed: otherwise the next file opened, a log or a
 * checkpoint, would take its descriptor and receive the printed lines. */
void ga_open_streams(void);

/* GA_ENVIRONMENT if not all that was printed to stdout could be written. */
int ga_flush_stdout(ga_err *e);

enum { GA_STACK = 4 << 20 };

/* Lets the stack of the main thread grow to GA_STACK bytes where `ulimit -s` is lower. GA_ENVIRONMENT where the system
 * does not allow that. */
int ga_stack_open(ga_err *e);

/* Asks the system for the matrix registers (AMX), for this process and the threads that it starts. GA_ENVIRONMENT where
 * the processor or the system has none. */
int ga_matrix_open(ga_err *e);

/* Writes one line of at most 1,023 bytes to stderr with one write(2); never fails, never allocates. */
void ga_say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

/* Redraws status lines on stderr, a terminal: text, which does not end in a newline, replaces the lines drawn before.
 * NULL keeps them and moves below. ga_say removes the lines; the next ga_draw draws them again. */
void ga_draw(const char *text);

/* Removes the drawn lines, if there are some, before other text is written. */
void ga_draw_clear(void);
bool ga_draw_shown(void);

#endif
