/* text.c: formatted text, JSON strings and numbers, whole writes. */
#include "base/text.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <unistd.h>

void ga_text_add(ga_text *t, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(t->base + t->used, t->size - t->used, fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n >= t->size - t->used) {
        t->full = true;
        t->base[t->used] = 0;
        return;
    }
    t->used += (size_t)n;
}

/* Length of the UTF-8 sequence at s; 0 if it is not valid. */
static int utf8_length(const unsigned char *s) {
    if (s[0] < 0x80) return 1;
    int n = s[0] >= 0xf0 && s[0] < 0xf5 ? 4 : s[0] >= 0xe0 ? 3 : s[0] >= 0xc2 ? 2 : 0;
    if (n == 0 || s[0] >= 0xf5) return 0;
    for (int i = 1; i < n; i++)
        if ((s[i] & 0xc0) != 0x80) return 0;
    if (n == 3 && ((s[0] == 0xe0 && s[1] < 0xa0) || (s[0] == 0xed && s[1] >= 0xa0))) return 0;
    if (n == 4 && ((s[0] == 0xf0 && s[1] < 0x90) || (s[0] == 0xf4 && s[1] >= 0x90))) return 0;
    return n;
}

void ga_text_string(ga_text *t, const char *s) {
    ga_text_add(t, "\"");
    while (*s) {
        unsigned char byte = (unsigned char)*s;
        int n = utf8_length((const unsigned char *)s);
        if (byte == '"' || byte == '\\')
            ga_text_add(t, "\\%c", byte);
        else if (byte < 0x20 || byte == 0x7f)
            ga_text_add(t, "\\u%04x", byte);
        else if (n == 0)
            ga_text_add(t, "\\ufffd");
        else
            ga_text_add(t, "%.*s", n, s);
        s += n > 0 ? n : 1;
    }
    ga_text_add(t, "\"");
}

void ga_text_number(ga_text *t, double value, int digits) {
    if (isnan(value))
        ga_text_add(t, "\"nan\"");
    else if (isinf(value))
        ga_text_add(t, value > 0 ? "\"inf\"" : "\"-inf\"");
    else
        ga_text_add(t, "%.*g", digits, value);
}

int ga_write_all(int fd, const void *data, size_t n) {
    const char *at = data;
    while (n > 0) {
        ssize_t done = write(fd, at, n);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return done < 0 ? errno : EIO;
        at += done;
        n -= (size_t)done;
    }
    return 0;
}
