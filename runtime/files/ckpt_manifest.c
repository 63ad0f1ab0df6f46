/* ckpt_manifest.c: see ckpt_manifest.h. */
#include "files/ckpt_manifest.h"

#include <stdio.h>
#include <string.h>
#include <zlib.h>

static void add_int(ga_text *t, const char *name, int64_t value) {
    ga_text_add(t, "\"%s\":%lld,\n", name, (long long)value);
}

static void add_text(ga_text *t, const char *name, const char *value) {
    ga_text_add(t, "\"%s\":", name);
    ga_text_string(t, value);
    ga_text_add(t, ",\n");
}

static void add_number(ga_text *t, const char *name, double value, const char *end) {
    ga_text_add(t, "\"%s\":", name);
    ga_text_number(t, value, 17);
    ga_text_add(t, "%s", end);
}

static void add_best(ga_text *t, const ga_ckpt_state *s) {
    if (!*s->best_metric) return;
    ga_text_add(t, "\"best\":{\"metric\":");
    ga_text_string(t, s->best_metric);
    ga_text_add(t, ",\"cycle\":%lld,\"bad\":%lld,", (long long)s->best.cycle, (long long)s->best.bad);
    add_number(t, "value", s->best.value, ",");
    add_number(t, "mark", s->best.mark, "},\n");
}

void ga_manifest_begin(ga_text *t, const ga_ckpt_state *s, const char *program, const char *run, uint64_t model,
                       int world) {
    ga_text_add(t, "{\"format\":1,\n");
    add_text(t, "version", s->version);
    add_text(t, "program", program);
    add_text(t, "run", run);
    add_text(t, "spec_sha256", s->spec_sha256);
    ga_text_add(t, "\"model_hash\":\"%016llx\",\n", (unsigned long long)model);
    add_int(t, "micro", s->micro);
    add_int(t, "cycle", s->cycle);
    add_int(t, "update", s->update);
    add_int(t, "skipped", s->skipped);
    add_int(t, "skipped_in_row", s->skipped_in_row);
    add_int(t, "epoch", s->epoch);
    add_int(t, "position", s->position);
    add_int(t, "batch", s->batch);
    add_int(t, "accumulate", s->accumulate);
    add_int(t, "r", s->r);
    for (int i = 0; i < GA_SAVED_SUMS; i++)
        add_number(t, ga_saved_sum_names[i], s->sums[i], ",\n");
    add_number(t, "nominal", s->nominal, ",\n");
    add_int(t, "seed", (int64_t)s->seed);
    ga_text_add(t, "\"scaler\":{");
    if (s->scaler != GA_NO_SCALE) ga_text_add(t, "\"kind\":\"%s\",", ga_scale_kind_names[s->scaler]);
    add_number(t, "scale", s->scale, ",");
    ga_text_add(t, "\"growth_step\":%lld,\"hysteresis_step\":%lld},\n", (long long)s->growth_step,
                (long long)s->hysteresis_step);
    ga_text_add(t, "\"numbers\":{");
    for (int i = 0; i < s->number_count; i++)
        add_number(t, s->numbers[i].name, s->numbers[i].value, i < s->number_count - 1 ? "," : "");
    ga_text_add(t, "},\n");
    add_best(t, s);
    add_int(t, "world", world);
    add_text(t, "target", s->target);
    add_text(t, "profile", s->profile);
    add_text(t, "tuning_sha256", s->tuning_sha256);
    ga_text_add(t, "\"finite\":true,\n\"data\":[");
    for (int i = 0; i < s->data_count; i++) {
        ga_text_add(t, i ? ",{\"path\":" : "{\"path\":");
        ga_text_string(t, s->data[i].path);
        ga_text_add(t, ",\"bytes\":%lld,\"checksum\":\"%08x\"}", (long long)s->data[i].bytes,
                    (unsigned)s->data[i].checksum);
    }
    ga_text_add(t, "],\n\"files\":[");
}

void ga_manifest_list(ga_text *t, bool first, const char *name, int64_t bytes, const uint32_t *checksums) {
    ga_text_add(t, first ? "\n{\"name\":" : ",\n{\"name\":");
    ga_text_string(t, name);
    ga_text_add(t, ",\"bytes\":%lld,\"checksums\":[", (long long)bytes);
    for (int64_t i = 0; i * GA_BLOCK < bytes; i++)
        ga_text_add(t, i ? ",\"%08x\"" : "\"%08x\"", (unsigned)checksums[i]);
    ga_text_add(t, "]}");
}

void ga_manifest_end(ga_text *t) {
    ga_text_add(t, "],\n");
    const unsigned crc = (unsigned)crc32(crc32(0, NULL, 0), (const unsigned char *)t->base, (unsigned)t->used);
    ga_text_add(t, "\"checksum\":\"%08x\"}\n", crc);
}

/* === files of lists of ranks ============================================================================ */

bool ga_ckpt_list_named(const char *file) {
    return strncmp(file, "group-", 6) == 0;
}

/* "0 1 5", or of many ranks their number and a hash. */
static void note_ranks(const ga_comm *c, const int *lists, int list, ga_note *note) {
    char text[8 * 256] = "";
    size_t used = 0;
    int count = 0;
    for (int rank = 0; rank < ga_comm_size(c) && used + 8 < sizeof text; rank++)
        if (lists[rank] == list)
            used += (size_t)snprintf(text + used, sizeof text - used, count++ ? " %d" : "%d", rank);
    note->key = "ranks";
    if (used < sizeof note->value) memcpy(note->value, text, used + 1);
    else snprintf(note->value, sizeof note->value, "%d ranks, crc32 %08lx", count,
                  crc32(0, (const unsigned char *)text, (unsigned)used));
}

ga_ckpt_list ga_ckpt_list_of(const ga_comm *c, const char *file) {
    char name[64];
    ga_ckpt_list found = {0};
    const ga_group *g;
    for (int k = 1; (g = ga_comm_group(c, k)); k++)
        for (int writer = ga_comm_size(c) - 1; writer >= 0; writer--) { /* the first rank of the list comes last */
            const int list = g->lists[writer];
            snprintf(name, sizeof name, "group-%s-%d.safetensors", g->name, list);
            if (strcmp(name, file) != 0) continue;
            found.group = k;
            found.writer = writer;
            found.held = g->lists[ga_comm_rank(c)] == list;
            note_ranks(c, g->lists, list, &found.note);
        }
    return found;
}
