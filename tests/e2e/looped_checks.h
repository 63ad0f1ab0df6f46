/* looped_checks.h: what the drivers of the library `looped` say of a call that does not do what it should; `ga_err e` is
 * in scope where they use CHECK and FAILS. */
#ifndef LOOPED_CHECKS_H
#define LOOPED_CHECKS_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "runtime/base/ga.h"

static void check(int ok, const char *what, const ga_err *e) {
    if (ok) return;
    fprintf(stderr, "%s: not so; last error: %s\n", what, e->msg);
    exit(1);
}
#define CHECK(condition) check(condition, #condition, &e)
#define FAILS(call, text)                                                                          \
    do {                                                                                           \
        memset(&e, 0, sizeof e);                                                                   \
        CHECK((call) == GA_INPUT);                                                                 \
        CHECK(strstr(e.msg, text) != NULL);                                                        \
    } while (0)

#endif
