/* json_file.c: see json_file.h. */
#include "files/json_file.h"

#include "files/file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

/* jansson asks for text in blocks of 1 KiB. After the first failure it gets no other one, and 1 KiB of brackets takes
 * 115 KiB; the rest is for a longer word or number: its block doubles. */
enum { RESERVE = 256 << 10, ALIGNMENT = 16 };

/* Memory of a thread that reads. */
typedef struct {
    char *bytes; /* RESERVE of them */
    size_t left; /* taken from the end */
    bool used;   /* since then nothing comes from elsewhere */
} reserve;

static _Thread_local reserve *reading;
static json_malloc_t take_usual;
static json_free_t give_usual;

static void *take(size_t n) {
    void *p = reading && reading->used ? NULL : take_usual(n);
    if (p || !reading) return p;
    reading->used = true;
    n = (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    reading->left = n <= reading->left ? reading->left - n : 0; /* no room: none for smaller blocks either */
    return reading->left ? reading->bytes + reading->left : NULL;
}

static void give(void *p) {
    if (!reading || (uintptr_t)p - (uintptr_t)reading->bytes >= RESERVE) give_usual(p);
}

/* A host program may have given jansson functions of its own. */
static void install(void) {
    json_get_alloc_funcs(&take_usual, &give_usual);
    json_set_alloc_funcs(take, give);
}

/* Text on its way to jansson. */
typedef struct {
    int fd;           /* -1: from memory */
    const char *text; /* the next byte in memory */
    int64_t at, left; /* offset of the next byte of the file; bytes left */
    int code;         /* of reading the file: an errno, or -1: became shorter */
} source;

static size_t next_bytes(void *buffer, size_t size, void *arg) {
    source *s = arg;
    const int64_t n = (int64_t)size < s->left ? (int64_t)size : s->left;
    if (reading->used) return 0;
    if (s->fd < 0) {
        memcpy(buffer, s->text, (size_t)n);
        s->text += n;
    } else {
        const int64_t got = ga_file_read(s->fd, buffer, n, s->at);
        s->code = got == n ? 0 : got < 0 ? errno : -1;
        if (s->code) return (size_t)-1;
        s->at += n;
    }
    s->left -= n;
    return (size_t)n;
}

static int read_from(json_t **out, source *s, const char *what, ga_err *e) {
    static pthread_once_t installed = PTHREAD_ONCE_INIT;
    json_error_t error = {0};
    pthread_once(&installed, install);
    reserve own = {.bytes = take_usual(RESERVE), .left = RESERVE};
    *out = NULL;
    if (own.bytes) {
        reading = &own;
        *out = json_load_callback(next_bytes, s, JSON_REJECT_DUPLICATES, &error);
        if (own.used) json_decref(*out); /* parts of it may lie in the reserve */
        if (own.used) *out = NULL;
        reading = NULL;
        give_usual(own.bytes);
    }
    if (*out) return GA_OK;
    if (!own.bytes || own.used || json_error_code(&error) == json_error_out_of_memory)
        return ga_fail(e, GA_ENVIRONMENT, "%s: no memory to read it", what);
    if (s->code > 0) return ga_fail(e, GA_ENVIRONMENT, "%s: cannot be read: %s", what, strerror(s->code));
    return ga_fail(e, GA_INPUT, "%s: %s", what, s->code ? "became shorter while it was read" : error.text);
}

int ga_json_read(json_t **out, int fd, int64_t from, int64_t n, const char *what, ga_err *e) {
    return read_from(out, &(source){.fd = fd, .at = from, .left = n}, what, e);
}

int ga_json_parse(json_t **out, const char *text, int64_t n, const char *what, ga_err *e) {
    return read_from(out, &(source){.fd = -1, .text = text, .left = n}, what, e);
}

int ga_json_open(json_t **out, const char *path, ga_err *e) {
    int64_t bytes;
    const int fd = ga_file_open(AT_FDCWD, path, path, &bytes, e);
    *out = NULL;
    GA_TRY(fd);
    const int code = ga_json_read(out, fd, 0, bytes, path, e);
    close(fd);
    return code;
}
