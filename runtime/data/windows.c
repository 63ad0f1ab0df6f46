/* windows.c: in memory text stays bytes, and tokens stay u16 or u32 as in their files. */
#include "data/windows.h"

#include "data/paths.h"
#include "data/stream.h"
#include "files/file.h"

#include <errno.h>
#include <string.h>

typedef struct record {
    unsigned char *base;
    int64_t context;
    int width;
    int32_t id[256]; /* text: of a byte, -1 for none */
} record;

/* Streamed ids: file number `at`, counted from 0, is open. */
typedef struct streamed {
    ga_paths paths;
    int64_t context, limit;
    int width;       /* of a token; 0: text */
    int32_t id[256]; /* text: of a byte, -1 for none */
    bool allowed[256];
    int at;
    bool open, begun;    /* begun: `last` is the first id of the next row */
    int64_t first, left; /* bytes of the present file's ids: read so far, and still to read */
    int32_t last;
    ga_stream s;
} streamed;

static size_t stream_size(int parts) {
    return ga_padded(sizeof(streamed)) + ga_paths_bytes(parts);
}

static int64_t token_at(const unsigned char *bytes, int width) {
    uint32_t low = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8;
    return width == 2 ? low : (int64_t)(low | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24);
}

static void decode_text(const ga_source *s, int64_t row, const uint64_t *draw, void *const out[]) {
    const record *r = s->self;
    const unsigned char *from = r->base + row * r->context;
    int32_t *input = out[0], *target = out[1];
    (void)draw;
    for (int64_t t = 0; t < r->context; t++) {
        input[t] = r->id[from[t]];
        target[t] = r->id[from[t + 1]];
    }
}

static void decode_tokens(const ga_source *s, int64_t row, const uint64_t *draw,
                          void *const out[]) {
    const record *r = s->self;
    const unsigned char *from = r->base + row * r->context * r->width;
    int32_t *input = out[0], *target = out[1];
    (void)draw;
    for (int64_t t = 0; t < r->context; t++) {
        input[t] = (int32_t)token_at(from + t * r->width, r->width);
        target[t] = (int32_t)token_at(from + (t + 1) * r->width, r->width);
    }
}

static void name_fields(ga_source *out, int64_t context) {
    out->fields = 2;
    out->field[0] = (ga_field){"input", GA_I32, context};
    out->field[1] = (ga_field){"target", GA_I32, context};
}

/* Makes a source of n ids of `width` bytes; the caller then reads the ids to r->base. */
static int make_source(ga_source *out, const ga_part *part, int parts, int64_t context, int width,
                       record **record_out, ga_arena *a, ga_err *e) {
    int64_t n = 0;
    for (int i = 0; i < parts; i++) n += part[i].count;
    record *r = ga_take(a, sizeof *r, 64, e);
    unsigned char *base = r ? ga_take(a, (size_t)(n * width), 64, e) : NULL;
    if (!base) return GA_BUG;
    *r = (record){.base = base, .context = context, .width = width};
    *record_out = r;
    *out = (ga_source){.rows = (n - 1) / context, .self = r};
    name_fields(out, context);
    if (out->rows >= 1) return GA_OK;
    return ga_fail(e, GA_INPUT, "%s: %lld ids give no window of %lld and the one behind it",
                   part->path, (long long)n, (long long)context);
}

static size_t arena_bytes(const ga_scan *scan, int width) {
    int64_t n = 0;
    for (int i = 0; i < scan->parts; i++) n += scan->count[i];
    return ga_padded(sizeof(record)) + ga_padded((size_t)(n * width));
}

static int refuse_count(const ga_part *part, int64_t found, const char *what, ga_err *e) {
    return ga_fail(e, GA_INPUT,
                   "%s: %lld %s found, %lld expected: is it the file the program was made for?",
                   part->path, (long long)found, what, (long long)part->count);
}

/* -- text -------------------------------------------------------------------------------------- */

typedef struct text {
    const char *path;
    const bool *allowed;
    bool *seen; /* filled in; NULL: only check */
} text;

static int take_text(void *arg, const unsigned char *bytes, int64_t count, int64_t first,
                     ga_err *e) {
    const text *t = arg;
    for (int64_t i = 0; i < count; i++) {
        if (t->allowed && !t->allowed[bytes[i]])
            return ga_fail(e, GA_INPUT,
                           "%s: byte 0x%02x at offset %lld does not occur in the training text, whose "
                           "bytes are the vocabulary",
                           t->path, bytes[i], (long long)(first + i));
        if (t->seen) t->seen[bytes[i]] = true;
    }
    return GA_OK;
}

static int open_text(ga_stream *s, const char *path, ga_err *e) {
    GA_TRY(ga_stream_open(s, path, GA_BY_CONTENT, e));
    int code = GA_OK;
    if (s->zipped)
        code = ga_fail(e, GA_INPUT, "%s: gzip data, expected text: unpack it first", path);
    else if (s->bytes == 0)
        code = ga_fail(e, GA_INPUT, "%s: empty, expected text", path);
    if (code < 0) ga_stream_close(s);
    return code;
}

int ga_text_scan(const char *const *path, int parts, const bool *allowed, ga_scan *out, ga_err *e) {
    *out = (ga_scan){.parts = parts, .fields = 1};
    out->field[0] = (ga_scan_field){.name = "input", .element = 1};
    ga_scan_ids(&out->field[0]);
    for (int i = 0; i < parts; i++) {
        ga_stream s;
        text t = {path[i], allowed, out->seen};
        GA_TRY(open_text(&s, path[i], e));
        int code = ga_stream_walk(&s, s.bytes, "the text", take_text, &t, e);
        out->count[i] = s.bytes;
        ga_stream_close(&s);
        GA_TRY(code);
    }
    for (int byte = 0, id = 0; byte < 256; byte++)
        if (out->seen[byte]) ga_scan_id(&out->field[0], id++, -1);
    out->bytes = arena_bytes(out, 1);
    out->stream_bytes = stream_size(parts);
    return GA_OK;
}

static int read_text(const ga_part *part, const bool *allowed, unsigned char *to, ga_err *e) {
    ga_stream s;
    text t = {part->path, allowed, NULL};
    GA_TRY(open_text(&s, part->path, e));
    int code;
    if (s.bytes != part->count)
        code = refuse_count(part, s.bytes, "bytes", e);
    else
        code = ga_stream_read(&s, to, part->count, "the text", e);
    ga_stream_close(&s);
    return code < 0 ? code : take_text(&t, to, part->count, 0, e);
}

/* The id of each byte, -1 for a byte outside the vocabulary; `allowed` flags those inside. */
static void number_bytes(const ga_text_spec *s, int32_t id[256], bool allowed[256]) {
    for (int byte = 0; byte < 256; byte++) id[byte] = -1;
    for (int i = 0; i < s->vocabulary_size; i++) {
        id[s->vocabulary[i]] = i;
        allowed[s->vocabulary[i]] = true;
    }
}

int ga_text_open(ga_source *out, const ga_text_spec *s, ga_arena *a, ga_err *e) {
    record *r;
    bool allowed[256] = {false};
    GA_TRY(make_source(out, s->part, s->parts, s->context, 1, &r, a, e));
    out->decode = decode_text;
    number_bytes(s, r->id, allowed);
    unsigned char *to = r->base;
    for (int i = 0; i < s->parts; i++) {
        GA_TRY(read_text(&s->part[i], allowed, to, e));
        to += s->part[i].count;
    }
    return GA_OK;
}

/* -- tokens ------------------------------------------------------------------------------------ */

enum { HEADER = 256 * 4, MAGIC_U16 = 20240520, MAGIC_U32 = 20240801 };

typedef struct layout {
    int64_t tokens;
    int header, width; /* bytes before the tokens, and per token */
} layout;

static int refuse_header(const ga_stream *s, const layout *l, int64_t version, ga_err *e) {
    int64_t expected = l->width == 2 ? 1 : 7;
    if (version != expected)
        return ga_fail(e, GA_INPUT, "%s: token file of version %lld, expected %lld", s->path,
                       (long long)version, (long long)expected);
    const int64_t bytes = s->bytes - l->header, part = bytes % l->width;
    if (l->tokens < 1 || bytes != l->tokens * l->width)
        return ga_fail(e, GA_INPUT, "%s: the header says %lld tokens, the file has bytes for %lld%s: it is cut off "
                       "or damaged", s->path, (long long)l->tokens, (long long)(bytes / l->width),
                       part ? " and a part of one" : "");
    return GA_OK;
}

/* Refuses a file that begins as something else than tokens: gzip data, or a header of another magic number, whose words
 * behind the third are 0 as in all headers of llm.c. */
static int refuse_foreign(const ga_stream *s, const unsigned char header[HEADER], ga_err *e) {
    const int64_t magic = token_at(header, 4);
    if ((magic & 0xe0ffffff) == 0x00088b1f)
        return ga_fail(e, GA_INPUT, "%s: gzip data, expected tokens: unpack it first", s->path);
    for (int i = 12; i < HEADER; i++)
        if (header[i] != 0) return GA_OK;
    if (s->bytes < HEADER || magic == 0) return GA_OK; /* may be tokens */
    return ga_fail(e, GA_INPUT, "%s: a header of magic number %lld, expected %d (16 bits) or %d (32 bits)", s->path,
                   (long long)magic, MAGIC_U16, MAGIC_U32);
}

static int find_layout(ga_stream *s, layout *l, ga_err *e) {
    unsigned char header[HEADER] = {0};
    if (ga_file_read(s->fd, header, HEADER, 0) < 0)
        return ga_fail(e, GA_ENVIRONMENT, "%s: cannot be read: %s", s->path, strerror(errno));
    const int64_t magic = token_at(header, 4);
    if (magic == MAGIC_U16 || magic == MAGIC_U32) {
        *l = (layout){token_at(header + 8, 4), HEADER, magic == MAGIC_U32 ? 4 : 2};
        GA_TRY(ga_stream_read(s, header, HEADER, "the header", e));
        return refuse_header(s, l, token_at(header + 4, 4), e);
    }
    GA_TRY(refuse_foreign(s, header, e));
    *l = (layout){s->bytes / 2, 0, 2};
    if (s->bytes > 0 && s->bytes % 2 == 0) return GA_OK;
    return ga_fail(e, GA_INPUT, "%s: %lld bytes, expected 16-bit tokens: %s", s->path,
                   (long long)s->bytes, s->bytes ? "an odd number is cut off" : "the file is empty");
}

static int open_tokens(ga_stream *s, const char *path, layout *l, ga_err *e) {
    GA_TRY(ga_stream_open(s, path, GA_PLAIN, e));
    int code = find_layout(s, l, e);
    if (code < 0) ga_stream_close(s);
    return code;
}

typedef struct tokens {
    const char *path;
    int width;
    int64_t limit;
    ga_scan_field *field; /* filled in; NULL: only check */
} tokens;

static int take_tokens(void *arg, const unsigned char *bytes, int64_t count, int64_t first,
                       ga_err *e) {
    const tokens *t = arg;
    for (int64_t i = 0; i < count; i += t->width) {
        int64_t token = token_at(bytes + i, t->width);
        if (token >= t->limit)
            return ga_fail(e, GA_INPUT, "%s: token %lld at place %lld, expected 0..%lld", t->path,
                           (long long)token, (long long)(first + i) / t->width,
                           (long long)t->limit - 1);
        if (t->field) ga_scan_id(t->field, token, (first + i) / t->width);
    }
    return GA_OK;
}

static int scan_tokens(const char *path, int part, ga_scan *out, ga_err *e) {
    ga_stream s;
    layout l;
    GA_TRY(open_tokens(&s, path, &l, e));
    int *width = &out->field[0].element;
    tokens t = {path, l.width, INT32_MAX, &out->field[0]};
    t.field->part = part;
    int code;
    if (part > 0 && l.width != *width)
        code = ga_fail(e, GA_INPUT, "%s: tokens of %d bytes, the first file has %d", path, l.width,
                       *width);
    else
        code = ga_stream_walk(&s, l.tokens * l.width, "the tokens", take_tokens, &t, e);
    *width = l.width;
    out->count[part] = l.tokens;
    ga_stream_close(&s);
    return code;
}

int ga_tokens_scan(const char *const *path, int parts, ga_scan *out, ga_err *e) {
    *out = (ga_scan){.parts = parts, .fields = 1};
    out->field[0] = (ga_scan_field){.name = "input"};
    ga_scan_ids(&out->field[0]);
    for (int i = 0; i < parts; i++) GA_TRY(scan_tokens(path[i], i, out, e));
    out->bytes = arena_bytes(out, out->field[0].element);
    out->stream_bytes = stream_size(parts);
    return GA_OK;
}

static int check_width(const char *path, int found, int expected, ga_err *e) {
    if (found == expected) return GA_OK;
    return ga_fail(e, GA_INPUT,
                   "%s: %d-bit tokens found, %d-bit tokens expected: is it the file the program was "
                   "made for?",
                   path, 8 * found, 8 * expected);
}

static int read_tokens(const ga_part *part, const ga_tokens_spec *spec, unsigned char *to,
                       ga_err *e) {
    ga_stream s;
    layout l;
    GA_TRY(open_tokens(&s, part->path, &l, e));
    tokens t = {part->path, spec->width, spec->limit, NULL};
    int code = check_width(part->path, l.width, spec->width, e);
    if (code == GA_OK && l.tokens != part->count)
        code = refuse_count(part, l.tokens, "tokens", e);
    if (code == GA_OK) code = ga_stream_read(&s, to, l.tokens * l.width, "the tokens", e);
    ga_stream_close(&s);
    return code < 0 ? code : take_tokens(&t, to, part->count * spec->width, 0, e);
}

int ga_tokens_open(ga_source *out, const ga_tokens_spec *s, ga_arena *a, ga_err *e) {
    record *r;
    GA_TRY(make_source(out, s->part, s->parts, s->context, s->width, &r, a, e));
    out->decode = decode_tokens;
    unsigned char *to = r->base;
    for (int i = 0; i < s->parts; i++) {
        GA_TRY(read_tokens(&s->part[i], s, to, e));
        to += s->part[i].count * s->width;
    }
    return GA_OK;
}

/* -- windows to predict ------------------------------------------------------------------------ */

/* Makes a source of the windows of `part`. One id more is there, which stands behind the last window. */
static int make_predicted(ga_source *out, const ga_part *part, int64_t context, int width, record **r, ga_arena *a,
                          ga_err *e) {
    const ga_part more = {part->path, part->count + 1};
    const int64_t rest = part->count % context;
    if (part->count < context)
        return ga_fail(e, GA_INPUT, "%s: %lld ids give no window of %lld", part->path, (long long)part->count,
                       (long long)context);
    if (rest > 0)
        ga_say("%s: the last %lld ids fill no window of %lld, and are left out", part->path, (long long)rest,
               (long long)context);
    GA_TRY(ga_arena_open_for(a, "rows to predict", ga_padded(sizeof **r) + ga_padded((size_t)(more.count * width)), e));
    return make_source(out, &more, 1, context, width, r, a, e);
}

int ga_text_predicted(ga_source *out, const ga_text_spec *s, ga_arena *a, ga_err *e) {
    record *r;
    bool allowed[256] = {false};
    ga_part part = s->part[0];
    ga_stream stream;
    GA_TRY(open_text(&stream, part.path, e));
    part.count = stream.bytes;
    ga_stream_close(&stream);
    GA_TRY(make_predicted(out, &part, s->context, 1, &r, a, e));
    out->decode = decode_text;
    number_bytes(s, r->id, allowed);
    return read_text(&part, allowed, r->base, e);
}

int ga_tokens_predicted(ga_source *out, const ga_tokens_spec *s, ga_arena *a, ga_err *e) {
    record *r;
    ga_part part = s->part[0];
    ga_stream stream;
    layout l;
    GA_TRY(open_tokens(&stream, part.path, &l, e));
    part.count = l.tokens;
    ga_stream_close(&stream);
    GA_TRY(make_predicted(out, &part, s->context, s->width, &r, a, e));
    out->decode = decode_tokens;
    return read_tokens(&part, s, r->base, e);
}

/* -- streamed rows ----------------------------------------------------------------------------- */

static void close_stream(void *self) {
    streamed *p = self;
    if (p->open) ga_stream_close(&p->s);
    p->open = false;
}

static int rewind_stream(void *self, ga_err *e) {
    streamed *p = self;
    (void)e;
    close_stream(p);
    p->at = 0;
    p->begun = false;
    return GA_OK;
}

static int open_next(streamed *p, ga_err *e) {
    const char *path = p->paths.path[p->at];
    layout l = {.width = p->width};
    if (p->width) GA_TRY(open_tokens(&p->s, path, &l, e));
    else GA_TRY(open_text(&p->s, path, e));
    p->open = true;
    p->first = 0;
    p->left = p->width ? l.tokens * l.width : p->s.bytes;
    return check_width(path, l.width, p->width, e);
}

/* Reads and checks at most n ids of one file; returns their number, 0 at the end of all files. */
static int64_t read_ids(streamed *p, int32_t *to, int64_t n, ga_err *e) {
    enum { PIECE = 4096 };
    unsigned char piece[PIECE];
    const int width = p->width ? p->width : 1;
    while (p->at < p->paths.count) {
        if (!p->open) GA_TRY(open_next(p, e));
        if (p->left > 0) break;
        close_stream(p);
        p->at++;
    }
    if (p->at == p->paths.count) return 0;
    int64_t bytes = n * width < PIECE ? n * width : PIECE;
    if (bytes > p->left) bytes = p->left;
    GA_TRY(ga_stream_read(&p->s, piece, bytes, p->width ? "the tokens" : "the text", e));
    const char *path = p->s.path;
    tokens numbers = {path, width, p->limit, NULL};
    text letters = {path, p->allowed, NULL};
    if (p->width) GA_TRY(take_tokens(&numbers, piece, bytes, p->first, e));
    else GA_TRY(take_text(&letters, piece, bytes, p->first, e));
    for (int64_t i = 0; i < bytes / width; i++)
        to[i] = p->width ? (int32_t)token_at(piece + i * width, width) : p->id[piece[i]];
    p->first += bytes;
    p->left -= bytes;
    return bytes / width;
}

/* Reads the next row: `last` and the ids after it. */
static int next_stream(void *self, void *const out[], ga_err *e) {
    enum { SOME = 1024 };
    streamed *p = self;
    int32_t ids[SOME];
    for (int64_t t = p->begun ? 0 : -1; t < p->context;) {
        const int64_t rest = p->context - t;
        const int64_t n = read_ids(p, ids, rest < SOME ? rest : SOME, e);
        if (n <= 0) return (int)n;
        for (int64_t i = 0; i < n; i++, t++) {
            if (out && t >= 0) {
                ((int32_t *)out[0])[t] = p->last;
                ((int32_t *)out[1])[t] = ids[i];
            }
            p->last = ids[i];
        }
        p->begun = true;
    }
    return 1;
}

static int make_stream(ga_source *out, const ga_part *part, int parts, int64_t context,
                        streamed **result, ga_arena *a, ga_err *e) {
    streamed *p = ga_take(a, sizeof *p, 64, e);
    if (!p) return GA_BUG;
    GA_TRY(ga_paths_keep(&p->paths, part, parts, a, e));
    p->context = context;
    *out = (ga_source){.feed = {rewind_stream, next_stream, close_stream, p}};
    name_fields(out, context);
    *result = p;
    return GA_OK;
}

int ga_text_stream(ga_source *out, const ga_text_spec *s, ga_arena *a, ga_err *e) {
    streamed *p;
    GA_TRY(make_stream(out, s->part, s->parts, s->context, &p, a, e));
    number_bytes(s, p->id, p->allowed);
    return GA_OK;
}

int ga_tokens_stream(ga_source *out, const ga_tokens_spec *s, ga_arena *a, ga_err *e) {
    streamed *p;
    GA_TRY(make_stream(out, s->part, s->parts, s->context, &p, a, e));
    p->width = s->width;
    p->limit = s->limit;
    return GA_OK;
}
