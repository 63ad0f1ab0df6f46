/* images.h: labelled images of one byte per value: IDX (MNIST and its kin, plain or gzip) and the
 * binary files of CIFAR-10. They stay bytes in memory; decode normalises through a table, crops and
 * flips. A row has two fields: input, real (channels, height, width), and target, i32. */
#ifndef GA_IMAGES_H
#define GA_IMAGES_H

#include "base/arena.h"
#include "data/scan.h"

enum { GA_CHANNELS = 16, GA_SIDE = 1 << 14 };

typedef struct ga_images_spec {
    const ga_part *images, *labels; /* labels: IDX only, file by file */
    int parts;
    int channels, height, width; /* of a stored image */
    int64_t classes;             /* labels are below */
    double scale;                /* value = (byte * scale - mean[c]) / std[c], in double, rounded */
    const double *mean, *std;    /* one per channel */
    int crop;    /* height and width of an input; 0: no crop. From draw element 0 the row (0 ..
                    height + 2 padding - crop), from 1 the column where it begins; without draw the
                    middle. Beyond the image are bytes 0 */
    int padding; /* around the image, before the crop */
    bool flip;   /* left and right change places if draw element 2 is below 1/2, after the crop */
    ga_dtype real; /* GA_F32 or GA_F64 */
} ga_images_spec;

/* Scans count images; `classes` of the result is field[1].high + 1. labels: as many files as
 * images, NULL for CIFAR-10. */
int ga_idx_scan(const char *const *images, const char *const *labels, int parts, ga_dtype real,
                ga_scan *out, ga_err *e);
int ga_cifar_scan(const char *const *images, int parts, ga_dtype real, ga_scan *out, ga_err *e);

/* Reads all images into the arena, checks every label. */
int ga_idx_open(ga_source *out, const ga_images_spec *s, ga_arena *a, ga_err *e);
int ga_cifar_open(ga_source *out, const ga_images_spec *s, ga_arena *a, ga_err *e);

/* For the two readers: pixels of row i begin at pixels + i * pixel_step, its label is
 * labels[i * label_step]; both stay with the source. */
typedef struct ga_image_bytes {
    const unsigned char *pixels, *labels;
    int64_t rows, pixel_step, label_step;
} ga_image_bytes;
int ga_images_source(ga_source *out, const ga_images_spec *s, const ga_image_bytes *b, ga_arena *a,
                     ga_err *e);

/* What ga_images_source takes from an arena that is used up to a multiple of 64. */
size_t ga_images_bytes(int channels, ga_dtype real);

#endif
