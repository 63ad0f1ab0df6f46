/* unicode.c: looks codes up in the tables. */
#include "unicode.h"

/* The range that holds the code, or NULL. */
static const ga_unicode_range *find(const ga_unicode_range *list, int n, uint32_t code) {
    int low = 0, high = n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (list[middle].last < code) low = middle + 1;
        else high = middle;
    }
    return low < n && list[low].first <= code ? &list[low] : NULL;
}

unsigned ga_unicode_class(uint32_t code) {
    const ga_unicode_range *r = find(ga_unicode_classes, ga_unicode_classes_count, code);
    return r ? r->value : 0;
}

int ga_unicode_combining(uint32_t code) {
    const ga_unicode_range *r = find(ga_unicode_combinings, ga_unicode_combinings_count, code);
    return r ? (int)r->value : 0;
}

uint32_t ga_unicode_lower(uint32_t code) {
    int low = 0, high = ga_unicode_cases_count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (ga_unicode_cases[middle].last < code) low = middle + 1;
        else high = middle;
    }
    if (low == ga_unicode_cases_count) return code;
    const ga_unicode_case *c = &ga_unicode_cases[low];
    if (code < c->first || (code - c->first) % c->step != 0) return code;
    return (uint32_t)((int64_t)code + c->distance);
}

/* Syllables of Hangul are decomposed by a formula (The Unicode Standard, 3.12). */
static int decompose_hangul(uint32_t code, uint32_t *out) {
    const uint32_t leading = 0x1100, vowel = 0x1161, trailing = 0x11a7, s = code - 0xac00;
    out[0] = leading + s / (21 * 28);
    out[1] = vowel + s / 28 % 21;
    if (s % 28 == 0) return 2;
    out[2] = trailing + s % 28;
    return 3;
}

static const ga_unicode_pair *find_pair(uint32_t code) {
    int low = 0, high = ga_unicode_pairs_count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (ga_unicode_pairs[middle].code < code) low = middle + 1;
        else high = middle;
    }
    if (low == ga_unicode_pairs_count || ga_unicode_pairs[low].code != code) return NULL;
    return &ga_unicode_pairs[low];
}

/* The first code of a pair may be decomposed again, the second never. */
int ga_unicode_decompose(uint32_t code, uint32_t out[GA_DECOMPOSED]) {
    if (code >= 0xac00 && code <= 0xd7a3) return decompose_hangul(code, out);
    uint32_t last[GA_DECOMPOSED];
    int n = 0, lasts = 0;
    const ga_unicode_pair *pair;
    while ((pair = find_pair(code)) && lasts < GA_DECOMPOSED - 1) {
        code = pair->first;
        if (pair->second) last[lasts++] = pair->second;
    }
    out[n++] = code;
    while (lasts > 0) out[n++] = last[--lasts];
    return n;
}

uint32_t ga_utf8_next(const char *text, size_t size, size_t *at) {
    unsigned char lead = (unsigned char)text[*at];
    size_t more = lead < 0xc0 || lead >= 0xf8 ? 0 : lead < 0xe0 ? 1 : lead < 0xf0 ? 2 : 3;
    if (size - *at <= more) more = 0;
    uint32_t code = more == 3 ? lead & 0x07u : more == 2 ? lead & 0x0fu : more == 1 ? lead & 0x1fu : lead;
    for (size_t i = 1; i <= more; i++) {
        unsigned char byte = (unsigned char)text[*at + i];
        if ((byte & 0xc0) != 0x80) {
            *at += 1;
            return lead;
        }
        code = code << 6 | (byte & 0x3fu);
    }
    *at += 1 + more;
    return code;
}

int ga_utf8_put(char out[4], uint32_t code) {
    if (code < 0x80) {
        out[0] = (char)code;
        return 1;
    }
    int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const unsigned char lead[] = {0, 0xc0, 0xe0, 0xf0};
    for (int i = more; i > 0; i--, code >>= 6) out[i] = (char)(0x80 | (code & 0x3f));
    out[0] = (char)(lead[more] | code);
    return 1 + more;
}
