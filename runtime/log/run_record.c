/* run_record.c: see run_record.h. The file is written under another name and renamed: it is always whole. */
#include "log/run_record.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "files/json_file.h"

enum { PATH = GA_PATH_MAX + 32, LINES_SHOWN = 6, TEXT = 200 };

static json_t *text_of(const char *s) {
    json_t *text = json_string(s);
    return text ? text : json_string("(not UTF-8)");
}

/* Leaves NULL where the run was killed before it had a record, or somebody has changed it to something else. */
static int read_record(json_t **out, const char *folder, ga_err *e) {
    char path[PATH];
    snprintf(path, sizeof path, "%s/run.json", folder);
    const int code = ga_json_open(out, path, e);
    if (*out && !json_is_object(*out)) {
        json_decref(*out);
        *out = NULL;
    }
    return code == GA_ENVIRONMENT ? code : GA_OK;
}

/* Writes the record, and drops it. */
static int write_record(const ga_run *r, json_t *record, ga_err *e) {
    char path[PATH], temporary[PATH + 8];
    snprintf(path, sizeof path, "%s/run.json", r->folder);
    snprintf(temporary, sizeof temporary, "%s.new", path);
    const bool failed = !record || json_dump_file(record, temporary, JSON_INDENT(2)) != 0
        || rename(temporary, path) != 0;
    json_decref(record);
    return failed ? ga_fail(e, GA_ENVIRONMENT, "%s: cannot be written: %s", path, strerror(errno)) : GA_OK;
}

static json_t *words(const ga_options *o) {
    json_t *list = json_array();
    for (int i = 0; i < o->argc; i++) json_array_append_new(list, text_of(o->argv[i]));
    return list;
}

/* Who starts the run, when, by which command. */
static void add_start(json_t *to, const ga_options *o) {
    char host[64] = "?", day[24], now[40];
    struct tm t;
    struct timespec clock;
    clock_gettime(CLOCK_REALTIME, &clock);
    gethostname(host, sizeof host - 1);
    strftime(day, sizeof day, "%Y-%m-%dT%H:%M:%S", gmtime_r(&clock.tv_sec, &t));
    snprintf(now, sizeof now, "%s.%03dZ", day, (int)(clock.tv_nsec / 1000000));
    json_object_set_new(to, "started", text_of(now));
    json_object_set_new(to, "host", text_of(host));
    json_object_set_new(to, "pid", json_integer(getpid()));
    json_object_set_new(to, "command", words(o));
}

static void add_setting(json_t *to, const char *name, const char *value) {
    if (value) json_object_set_new(to, name, text_of(value));
}

/* The settings of a run, by name, as text: two runs of a program may differ in these. */
static json_t *settings_of(const ga_run_start *s) {
    const ga_options *o = s->options;
    char number[32];
    json_t *list = json_object();
    add_setting(list, "program", s->command);
    snprintf(number, sizeof number, "%llu", (unsigned long long)s->seed);
    add_setting(list, "seed", number);
    snprintf(number, sizeof number, "%lld", (long long)o->cycles);
    add_setting(list, "cycles", o->cycles ? number : NULL);
    snprintf(number, sizeof number, "%d", o->threads);
    add_setting(list, "threads", o->threads ? number : NULL);
    snprintf(number, sizeof number, "%lld", (long long)o->overfit);
    add_setting(list, "overfit", o->overfit ? number : NULL);
    add_setting(list, "data", o->data);
    add_setting(list, "init", o->init);
    add_setting(list, "fresh", o->fresh);
    add_setting(list, "resumed from", *s->resumed ? s->resumed : NULL);
    return list;
}

static void add_difference(json_t *list, const char *name, const char *before, const char *now) {
    char text[2 * TEXT];
    if (strcmp(before, now) == 0) return;
    snprintf(text, sizeof text, "%s: %.150s -> %.150s", name, before, now);
    json_array_append_new(list, text_of(text));
}

static const char *value_in(const json_t *settings, const char *name) {
    const char *value = json_string_value(json_object_get(settings, name));
    return value ? value : "default";
}

static char *read_spec(const char *folder) {
    char path[PATH];
    char *text = NULL;
    size_t room = 0;
    snprintf(path, sizeof path, "%s/spec.lua", folder);
    FILE *f = fopen(path, "re");
    if (!f) return NULL;
    if (getdelim(&text, &room, 0, f) < 0) {
        free(text);
        text = NULL;
    }
    fclose(f);
    return text;
}

/* Whether `text` has this line of n bytes. */
static bool has_line(const char *text, const char *line, size_t n) {
    for (const char *at = text; *at;) {
        const size_t length = strcspn(at, "\n");
        if (length == n && memcmp(at, line, n) == 0) return true;
        at += length + (at[length] == '\n');
    }
    return false;
}

/* Adds the lines of `text` that `other` has not, behind a sign. */
static void add_lines(json_t *list, const char *text, const char *other, char sign) {
    char shown[TEXT];
    int count = 0;
    for (const char *at = text; *at;) {
        const size_t n = strcspn(at, "\n");
        if (n > 0 && !has_line(other, at, n) && count++ < LINES_SHOWN) {
            snprintf(shown, sizeof shown, "spec: %c %.*s", sign, (int)(n < TEXT - 16 ? n : TEXT - 16), at);
            json_array_append_new(list, text_of(shown));
        }
        at += n + (at[n] == '\n');
    }
    if (count > LINES_SHOWN) {
        snprintf(shown, sizeof shown, "spec: %c %d more lines", sign, count - LINES_SHOWN);
        json_array_append_new(list, text_of(shown));
    }
}

/* The settings and the lines of the spec that differ from the run in `before`, whose record may be NULL. */
static json_t *differences(const ga_run *r, const json_t *settings, const char *before, json_t *record) {
    json_t *list = json_array(), *value;
    const json_t *earlier = json_object_get(record, "settings");
    const char *name;
    json_object_foreach(json_object_get(record, "settings"), name, value)
        add_difference(list, name, json_string_value(value) ? json_string_value(value) : "?", value_in(settings, name));
    json_object_foreach((json_t *)settings, name, value)
        if (!json_object_get(earlier, name)) add_difference(list, name, "default", json_string_value(value));
    char *now = read_spec(r->folder), *then = read_spec(before);
    if (now && then) {
        add_lines(list, then, now, '-');
        add_lines(list, now, then, '+');
    }
    free(now);
    free(then);
    return list;
}

int ga_run_record_new(const ga_run *r, const ga_run_start *s, const char *before, ga_err *e) {
    json_t *record = json_object(), *settings = settings_of(s), *earlier = NULL;
    const bool compares = before && read_record(&earlier, before, NULL) == GA_OK;
    if (!record || !settings) {
        json_decref(record);
        json_decref(settings);
        json_decref(earlier);
        return ga_fail(e, GA_ENVIRONMENT, "%s: not enough memory", r->folder);
    }
    json_object_set_new(record, "run", text_of(r->name));
    json_object_set_new(record, "program", text_of(s->program));
    add_start(record, s->options);
    json_object_set_new(record, "seed", json_integer((json_int_t)s->seed));
    json_object_set_new(record, "spec_sha256", text_of(s->spec_sha256));
    if (compares) json_object_set_new(record, "differs", differences(r, settings, before, earlier));
    json_decref(earlier);
    json_object_set_new(record, "settings", settings);
    return write_record(r, record, e);
}

int ga_run_record_resumed(const ga_run *r, const ga_run_start *s, ga_err *e) {
    json_t *record;
    GA_TRY(read_record(&record, r->folder, e));
    if (!record) record = json_object();
    json_t *entry = json_object();
    json_t *list = json_object_get(record, "resumed");
    if (!list) {
        list = json_array();
        json_object_set_new(record, "resumed", list);
    }
    json_object_set_new(entry, "from", text_of(s->resumed));
    add_start(entry, s->options);
    json_array_append_new(list, entry);
    json_object_set_new(record, "run", text_of(r->name));
    json_object_del(record, "end");
    return write_record(r, record, e);
}

int ga_run_record_end(const ga_run *r, const ga_run_end *end, ga_err *e) {
    json_t *record;
    GA_TRY(read_record(&record, r->folder, e));
    if (!record) return ga_fail(e, GA_ENVIRONMENT, "%s/run.json: cannot be read", r->folder);
    json_object_set_new(record, "end",
                        json_pack("{s:s, s:I, s:I, s:I, s:f}", "reason", end->reason, "cycle", (json_int_t)end->cycle,
                                  "update", (json_int_t)end->update, "skipped", (json_int_t)end->skipped, "seconds",
                                  ga_clock() - r->began));
    return write_record(r, record, e);
}

void ga_run_record_started(const char *folder, char out[32]) {
    json_t *record;
    const int code = read_record(&record, folder, NULL);
    const char *text = code < 0 ? NULL : json_string_value(json_object_get(record, "started"));
    snprintf(out, 32, "%.31s", text ? text : "");
    json_decref(record);
}
