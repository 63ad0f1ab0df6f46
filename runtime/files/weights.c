/* weights.c: collects weights from the flat space and writes them, as bytes or as an array of C. */
#include "files/weights.h"

#include "base/arena.h"
#include "files/file.h"

#include <stdio.h>
#include <string.h>

enum { WORDS_OF_LINE = 4, WORD_TEXT = 22, FIRST_LINE = 512 };

/* The head: the number of the model, bytes behind it, their checksum. The rest is zero. */
typedef struct head {
    uint64_t model, bytes, checksum;
} head;

static void collect(const ga_weights *w, const ga_weight *one, char *to) {
    for (int64_t l = 0; l < one->count; l++) {
        char *const at = to + one->at + l * one->next;
        for (int64_t i = 0; i < one->n; i++) {
            const double value = ga_get(w->flat, w->type, one->from + l * one->from_next + i);
            if (one->half) ((uint16_t *)at)[i] = w->narrow((float)value);
            else ga_set(at, w->type, i, value);
        }
    }
}

static uint64_t checksum(const char *bytes, int64_t n) {
    uint64_t sum = 14695981039346656037ull;
    for (int64_t i = 0; i < n; i += 4) {
        uint32_t x;
        memcpy(&x, bytes + i, sizeof x);
        sum = (sum ^ x) * 1099511628211ull;
    }
    return sum;
}

/* The text of an array of n words at `to`; returns its length. */
static int64_t write_words(char *to, const char *name, const uint64_t *word, int64_t n) {
    char *at = to;
    at += sprintf(at, "/* The weights of %.100s, for %.100s_predict.h. */\n#include <stdint.h>\n\n", name, name);
    at += sprintf(at, "static const uint64_t %.100s_predict_weights[] __attribute__((aligned(64))) = {\n", name);
    for (int64_t i = 0; i < n; i++)
        at += sprintf(at, "0x%016llx,%c", (unsigned long long)word[i], (i + 1) % WORDS_OF_LINE ? ' ' : '\n');
    at += sprintf(at, "};\n");
    return at - to;
}

static int write_file(const char *path, const void *bytes, int64_t n, ga_err *e) {
    ga_new_file f;
    GA_TRY(ga_file_begin(&f, path, e));
    const int failed = ga_file_write(f.fd, bytes, n, 0);
    if (failed) ga_fail(e, GA_ENVIRONMENT, "%s: cannot be written: %s", f.temporary, strerror(failed));
    return ga_file_end(&f, failed ? GA_ENVIRONMENT : GA_OK, e);
}

int ga_weights_save(const char *path, const ga_weights *w, ga_err *e) {
    const size_t length = strlen(path);
    const bool as_text = length > 2 && strcmp(path + length - 2, ".h") == 0;
    const int64_t all = GA_WEIGHTS_HEAD + w->bytes, words = all / 8;
    ga_arena bytes = {0}, text = {0};
    GA_TRY(ga_arena_open_for(&bytes, "weights", (size_t)all, e));
    int code = as_text ? ga_arena_open_for(&text, "weights", (size_t)(FIRST_LINE + words * WORD_TEXT), e) : GA_OK;
    if (code == GA_OK) {
        char *const values = bytes.base + GA_WEIGHTS_HEAD;
        for (int i = 0; i < w->count; i++) collect(w, &w->weight[i], values);
        *(head *)bytes.base = (head){w->model, (uint64_t)w->bytes, checksum(values, w->bytes)};
        if (as_text)
            code = write_file(path, text.base, write_words(text.base, w->name, (const uint64_t *)bytes.base, words), e);
        else
            code = write_file(path, bytes.base, all, e);
    }
    ga_arena_close(&bytes);
    ga_arena_close(&text);
    return code;
}
