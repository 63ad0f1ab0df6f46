/* ckpt_retain.c: see ckpt_retain.h. */
#include "files/ckpt_retain.h"

#include "files/ckpt.h"
#include "files/folder.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

typedef struct {
    int64_t cycle, best; /* the newest and the best */
    int r;
    int older;           /* checkpoints before the newest, the best left out */
    bool best_older;     /* the best is one of them */
    bool later;          /* there are some after it */
    int64_t low_cycle;   /* the oldest, the best left out */
    int low_r;
    char lowest[GA_CKPT_NAME];
} survey;

static int survey_name(void *arg, const char *name) {
    survey *s = arg;
    int64_t cycle;
    int r;
    if (!ga_ckpt_name_parse(name, &cycle, &r)) return GA_OK;
    if (cycle > s->cycle || (cycle == s->cycle && r >= s->r)) {
        s->later = s->later || cycle > s->cycle || r > s->r;
        return GA_OK;
    }
    if (cycle == s->best && r == 0) {
        s->best_older = true;
        return GA_OK;
    }
    if (s->older++ == 0 || cycle < s->low_cycle || (cycle == s->low_cycle && r < s->low_r)) {
        s->low_cycle = cycle;
        s->low_r = r;
        snprintf(s->lowest, sizeof s->lowest, "%s", name);
    }
    return GA_OK;
}

/* Checkpoints from the oldest that may go to the one before the newest. */
static int newer(const survey *s) {
    const bool between = s->best_older && s->best > s->low_cycle;
    return s->older + (between ? 1 : 0);
}

void ga_ckpt_retain(const ga_ckpt_kept *k, bool *warned) {
    for (;;) {
        survey s = {.best = k->best};
        ga_ckpt_name_parse(k->newest, &s.cycle, &s.r);
        if (ga_folder_each(k->folder, survey_name, &s) < 0) return;
        if (s.later && !*warned) {
            ga_say("%s: holds checkpoints later than %s, from another run: --resume latest will take those", k->path,
                   k->newest);
            *warned = true;
        }
        if (s.older == 0 || newer(&s) < k->keep) return;
        /* Renamed first, so that a kill leaves no partial checkpoint under a checkpoint's name. */
        char old[GA_CKPT_NAME + 8];
        snprintf(old, sizeof old, ".tmp-%s", s.lowest);
        const int rc = renameat(k->folder, s.lowest, k->folder, old) ? errno : ga_folder_remove(k->folder, old);
        if (rc) {
            ga_say("%s/%s: an old checkpoint could not be deleted: %s", k->path, s.lowest, strerror(rc));
            return;
        }
    }
}
