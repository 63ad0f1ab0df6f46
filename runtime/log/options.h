/* options.h: the command line of a training program, and the search for its data files. */
#ifndef GA_OPTIONS_H
#define GA_OPTIONS_H

#include "base/ga.h"

/* Strings point into argv. An option that is not given is NULL or the value in brackets. */
typedef struct ga_options {
    int64_t cycles;         /* [0] end after this cycle */
    const char *data;       /* folder of the data */
    const char *checkpoint; /* folder of the checkpoints */
    const char *resume;     /* "latest", the name of a run, or a checkpoint's path */
    const char *run;        /* name of a new run */
    const char *init;       /* .safetensors with the parameters */
    const char *fresh;      /* globs of parameters that `init` may lack or have with another shape */
    const char *log;        /* file for JSON lines */
    const char *watch;      /* name of a parameter; not terminated: see watch_length */
    size_t watch_length;    /* bytes of that name */
    int watch_count;        /* elements to show, 1..1000000 */
    bool watch_kernels;     /* look for an edited kernels.c at each boundary */
    const char *dump;       /* folder for the tensors at the end */
    const char *save_init;  /* file for the initial parameters */
    const char *offline;    /* architecture to compile the device's kernels for, instead of training */
    int threads;            /* [0] 1..1024 */
    int64_t seed;           /* [-1] 0..2^63-1 */
    int64_t stop_micro;     /* [0] save and stop after this micro-step */
    int64_t overfit;        /* [0] train on the first `overfit` micro-batches of an epoch only, without checkpoints */
    int64_t sample;         /* [0] tokens to generate, instead of training */
    const char *prompt;     /* of --sample: what the tokens follow, or a file with it */
    const char *stop;       /* of --sample: the text that ends it */
    double temperature;     /* [1] of --sample; 0: always the likeliest token */
    int64_t top_k;          /* [0] of --sample: only so many of the likeliest tokens */
    double top_p;           /* [1] of --sample: only the likeliest tokens that have this share of the probability */
    const char *predict;    /* file of rows whose outputs are wanted, instead of training */
    const char *out;        /* of --predict: file of the outputs, .npy or .csv */
    bool probabilities;     /* of --predict: what softmax or sigmoid make of them */
    const char *save_weights; /* file of weights for NAME_predict, instead of training */
    bool check_finite;      /* train-probe: stop at the first value that is not finite */
    bool profile;           /* train-probe: measure the time of each kernel */
    bool no_graph;          /* launch the device's kernels one by one, without a graph */
    bool plot;              /* draw the losses above the progress line */
    bool eval, quiet, help;
    bool own_loop;          /* opened by NAME.h for a loop of the user's: no run of train, no folder is locked */
    int argc;               /* words of the command line */
    char *const *argv;
} ga_options;

/* Fills o from the command line. GA_INPUT: the message names the option, its value and its range. */
int ga_options_parse(ga_options *o, int argc, char *const *argv, ga_err *e);

/* The option by which a program does not train, such as "--eval"; NULL: it trains. */
const char *ga_options_instead(const ga_options *o);

/* Prints the text of --help to stdout; GA_ENVIRONMENT if it could not be written whole. */
int ga_options_help(const char *program, ga_err *e);

/* Folder of the running program, without a final slash. */
int ga_program_folder(char *out, size_t size, ga_err *e);

/* Finds a data file: `relative` in option_dir if it is not NULL; else in $GAGEN_DATA (if set), then in
 * program_dir/data. An absolute path is used unchanged. GA_INPUT lists the folders searched. */
int ga_data_path(char *out, size_t size, const char *option_dir, const char *program_dir,
                 const char *relative, ga_err *e);

#endif
