/* unicode.h: the properties of characters that tokenizers use. Codes are those of Unicode, texts are
 * UTF-8. tools/unicode-tables makes the tables and writes the version of Unicode into them. */
#ifndef GA_UNICODE_H
#define GA_UNICODE_H

#include <stddef.h>
#include <stdint.h>

/* Classes of a code; it may have several. The last three are BERT's: other = control, format and private
 * use; nonspacing marks. */
enum {
    GA_LETTER = 1,
    GA_NUMBER = 2,
    GA_SPACE = 4,
    GA_OTHER = 8,
    GA_PUNCTUATION = 16,
    GA_NONSPACING = 32
};

enum { GA_DECOMPOSED = 4 }; /* codes of one canonical decomposition, at most */

unsigned ga_unicode_class(uint32_t code);
int ga_unicode_combining(uint32_t code);   /* canonical combining class, 0 for a starter */
uint32_t ga_unicode_lower(uint32_t code);  /* the lower-case letter, or the code itself */

/* Writes the full canonical decomposition, not yet in canonical order; returns the number of codes. */
int ga_unicode_decompose(uint32_t code, uint32_t out[GA_DECOMPOSED]);

/* Returns the code at text[*at] and moves *at past it. A byte that is no valid UTF-8 is a code itself. */
uint32_t ga_utf8_next(const char *text, size_t size, size_t *at);

/* Writes the code as UTF-8; returns the number of bytes. */
int ga_utf8_put(char out[4], uint32_t code);

/* The tables, in the order of codes. */
typedef struct ga_unicode_range {
    uint32_t first, last;
    unsigned value;
} ga_unicode_range;

typedef struct ga_unicode_pair {
    uint32_t code, first, second; /* second = 0: there is only one */
} ga_unicode_pair;

typedef struct ga_unicode_case {
    uint32_t first, last, step; /* every step-th code from first to last */
    int32_t distance;           /* to its lower-case letter */
} ga_unicode_case;

extern const ga_unicode_range ga_unicode_classes[], ga_unicode_combinings[];
extern const ga_unicode_pair ga_unicode_pairs[];
extern const ga_unicode_case ga_unicode_cases[];
extern const int ga_unicode_classes_count, ga_unicode_combinings_count, ga_unicode_pairs_count,
    ga_unicode_cases_count;

#endif
