/* twins.h: products and attention that have two kernels: one for all devices with tensor cores (mma.sync), and a twin
 * for those of sm_90 alone, which copies boxes and multiplies by warpgroups (wgmma). A start compares both on made-up
 * data. A twin is taken where its results are the same but for rounding and it is the faster one. Choices are kept in
 * tuning.json in the program's folder; a later start on the same device compares again and keeps what is there. The
 * twin adds up terms in another order: bits depend on the choice, so checkpoints have its hash. */
#ifndef GA_TWINS_H
#define GA_TWINS_H
#include "device/device.h"
#include "ranks/comm.h"

enum { GA_TWIN_PARAMETERS = 40, GA_TWIN_OPERANDS = 4, GA_BOX_COLUMNS = 64 };

/* The argument that a comparison passes for a parameter: arrays of made-up 16-bit or f32 numbers, an array of
 * bytes that are 0 or 1 (n: bytes), 0.5, 0, no array, whether the kernel adds to its result, the twin's sizes. */
typedef enum ga_made {
    GA_MADE_HALF,
    GA_MADE_REAL,
    GA_MADE_ZERO,
    GA_MADE_ONES,
    GA_MADE_NUMBER,
    GA_MADE_WHOLE,
    GA_MADE_NONE,
    GA_MADE_ADDS,
    GA_MADE_SIZES
} ga_made;

typedef struct ga_twin_parameter {
    ga_made made;
    int64_t n;
    bool result;
} ga_twin_parameter;

/* An operand that a twin copies by boxes, a matrix of 16-bit elements, or several of them behind each other: the
 * parameter with its address, its first element there, its extents, their number (0: it is one), the distance of rows,
 * the rows of a box. */
typedef struct ga_twin_operand {
    int parameter;
    int64_t first, columns, rows, sheets, stride;
    int box_rows;
} ga_twin_operand;

typedef struct ga_twin {
    const char *name;                  /* of the function that launches the kernel or its twin */
    const char *twin;                  /* its kernels are TWIN_boxes and TWIN_parts */
    int kernel;                        /* number of the kernel */
    unsigned blocks, threads, shared;  /* of its launch */
    unsigned own_blocks, own_shared;   /* of the twin's */
    unsigned tiles;                    /* blocks that add up parts; 0: no tile comes in parts */
    unsigned sums, totals;             /* blocks for sums of an operand beside the product; 0: there are none */
    const char *summing;               /* their kernels are SUMMING_sums and SUMMING_totals */
    int left_out;                      /* the parameter that these alone take, where totals are more than 0 */
    bool parts;                        /* whether the twin takes memory for parts of its result */
    bool rounds;                       /* results are sums by weights that are rounded to 16 bits */
    int operands;
    ga_twin_operand boxes[GA_TWIN_OPERANDS];
    ga_dtype half;                     /* GA_BF16, GA_F16 */
    int parameters;
    ga_twin_parameter made[GA_TWIN_PARAMETERS];
    void *sizes;                       /* what both kernels get for GA_MADE_SIZES */
} ga_twin;

enum { GA_TWIN_KERNELS = 4 };         /* in the order of their launches */

typedef struct ga_twin_state {
    ga_kernel kernels[GA_TWIN_KERNELS];
    bool taken;
} ga_twin_state;

typedef struct ga_twins {
    ga_device *device;
    ga_cuda_stream stream;
    const ga_kernel *kernels;
    const ga_twin *list;
    ga_twin_state *states;             /* of each */
    int count;
    size_t parts_bytes;                /* for the sums of tiles that come in parts */
    ga_address parts;                  /* the memory, on a device that can use twins */
    char sha256[65];                   /* of the names of those taken; "": none is */
} ga_twins;

/* Chooses for each kernel of t, whose fields are set but for states, parts and sha256. folder: of the program; text:
 * that of the kernels, by whose hash choices are found again. With ranks a twin is taken where all have chosen it.
 * GAGEN_TWINS=all takes each that compares right, GAGEN_TWINS=none takes none; neither is kept. Needs memory for the
 * operands of one kernel at a time, which is given back; where there is none, and where the driver cannot describe
 * boxes, no twin is taken and a line says so. Collective. */
int ga_twins_open(ga_twins *t, const char *folder, const ga_kernel_source *text, ga_comm *comm, ga_err *e);

/* Launches kernel `i` of the list, or its twin; args: of the kernel. */
int ga_twins_launch(const ga_twins *t, ga_cuda_stream s, int i, void **args, ga_err *e);
#endif
