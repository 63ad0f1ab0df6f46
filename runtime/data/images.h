/* images.h: labelled images of one byte per value: IDX files (the format of MNIST, plain or gzip) and the
 * binary files of CIFAR-10. Images stay bytes in memory; decode normalises through a table, crops and
 * flips. A row has two fields: input, real (channels, height, width), and target, i32. */
#ifndef GA_IMAGES_H
#define GA_IMAGES_H

#include "base/arena.h"
#include "data/scan.h"

enum { GA_CHANNELS = 16, GA_SIDE = 1 << 14 };

typedef struct ga_images_spec {
    const ga_part *images, *labels; /* labels: IDX only, one file per file of images */
    int parts;
    int channels, height, width; /* of a stored image */
    int64_t classes;             /* labels are in [0, classes) */
    double scale;                /* value = (byte * scale - mean[c]) / std[c], in double, then rounded */
    const double *mean, *std;    /* one per channel */
    int crop;    /* height and width of an input; 0: no crop. Random number 0 of the row gives the crop's
                    first line (0 .. height + 2 padding - crop), number 1 its first column; without
                    random numbers it is the middle. Bytes outside the image are 0 */
    int padding; /* around the image, before the crop */
    bool flip;   /* mirror left to right, after the crop, if random number 2 of the row is below 1/2 */
    ga_dtype real; /* GA_F32 or GA_F64 */
} ga_images_spec;

/* Scan files of images: field[1].high + 1 is the number of classes. labels: one file per file of images;
 * CIFAR-10 has none. */
int ga_idx_scan(const char *const *images, const char *const *labels, int parts, ga_dtype real,
                ga_scan *out, ga_err *e);
int ga_cifar_scan(const char *const *images, int parts, ga_dtype real, ga_scan *out, ga_err *e);

/* Read all images into the arena and check every label. */
int ga_idx_open(ga_source *out, const ga_images_spec *s, ga_arena *a, ga_err *e);
int ga_cifar_open(ga_source *out, const ga_images_spec *s, ga_arena *a, ga_err *e);

/* Images to predict, of the first file of s->images, any number of them; labels are not read. Open the arena. */
int ga_idx_predicted(ga_source *out, const ga_images_spec *s, ga_arena *a, ga_err *e);
int ga_cifar_predicted(ga_source *out, const ga_images_spec *s, ga_arena *a, ga_err *e);

/* Bytes of the images, from either reader: the pixels of row i begin at pixels + i * pixel_step, its label
 * is labels[i * label_step]. The source keeps using them. */
typedef struct ga_image_bytes {
    const unsigned char *pixels, *labels;
    int64_t rows, pixel_step, label_step;
} ga_image_bytes;
int ga_images_source(ga_source *out, const ga_images_spec *s, const ga_image_bytes *b, ga_arena *a,
                     ga_err *e);

/* Bytes that ga_images_source takes from an arena whose used size is a multiple of 64. */
size_t ga_images_bytes(int channels, ga_dtype real);

#endif
