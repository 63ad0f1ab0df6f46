//@ head(header, guard, half, device, parallel, placed, sends, filed, real, dtype)
$header
#ifndef $guard
#define $guard

//% if half then
#include "runtime/base/$half.h"
//% end
//% if not device or placed then
#include "runtime/base/cores.h"
#include "runtime/base/team.h"
//% end
#include "runtime/data/data.h"
//% if device then
#include "runtime/device/twins.h"
//% end
//% if parallel then
#include "runtime/device/device_nccl.h"
//% end
//% if sends then
#include "runtime/files/sent.h"
//% end
#include "runtime/files/shards.h"
//% if filed then
#include "runtime/files/state_file.h"
//% end
#include "runtime/log/run.h"
#include "runtime/log/log.h"
#include "runtime/log/options.h"
#include "runtime/loop/cycle.h"
#include "runtime/ranks/comm.h"
//% if placed then
#include "runtime/ranks/placed.h"
//% end

typedef $real real;
#define REAL $dtype

//@ iteration()
/* Bytes from the value of iteration 0 of a loop to that of iteration l; two elements of 16 bits count as one. */
static inline ga_address iteration(int64_t l, size_t distance) {
    return (ga_address)l * distance * sizeof(real);
}

//@ sizes(sizes, arenas)
enum {
    $sizes
};

/* The memory of the program: one mapping each, made at start. */
enum {
    $arenas
};

//@ distances(lines)
/* Elements from one iteration of a loop to the next: of a value that each keeps, of the parameters of a layer. */
$lines

//@ ranges(fields, names, parts, lists)
/* Where a range lies in an array, in elements: the offset of its first layer, the distance from layer to layer. */
typedef struct offsets { int64_t first, next; } offsets;

/* Neighbouring parameters with one rule of update, in each layer of a loop. */
typedef struct range {
    int64_t count; /* elements of a layer */
    int layers; /* 1 outside of loops */
    $fields
} range;

typedef struct ranges {
    $names
} ranges;

/* The offset of layer l. */
static inline int64_t in_layer(offsets o, int l) { return o.first + l * o.next; }
//% if parts then

/* The parts that a range is cut into, each of one layer. */
typedef struct parts { range *first, *end; } parts;

typedef struct part_lists {
    $lists
} part_lists;
//% end

//@ device_arenas(device_arenas, graphs)
/* The memory of the device. */
enum {
    $device_arenas
};

/* Work that the device is sent as a whole: a cycle from either slot of the ring, one micro-step. */
enum {
    $graphs
};

//@ parameters(parameters)
/* Every array over the flat space (values, gradients, optimizer state) has this form. */
typedef struct parameters {
    $parameters
} parameters;

//@ gradients(fields)
/* The gradient of a cycle: the same in 16 bits. */
typedef struct gradients {
    $fields
} gradients;

//@ views(views)
/* Copies of weights in the layout that a kernel reads, made again after every update. */
typedef struct views {
    $views
} views;

//@ micro_batch(activations, batch)
/* Results of one micro-step; places are shared by values that are not needed at the same time. */
typedef struct activations {
    $activations
} activations;

typedef struct batch {
    $batch
} batch;

//@ device_step(sum_names, small, step_fields)
$sum_names
$small

/* The step block of the device, as kernels.cu has it; the host reads it at the end of a cycle. */
typedef struct step {
    _Alignas(16)
    $step_fields
} step;

/* Memory between host and device beside batches; pinned. */
typedef struct transfer {
    step step[2];            /* of the cycles whose batches are in the slots of the ring */
    double stop;             /* what this rank was asked for: ga_stop_requests */
} transfer;

//@ step(sum_names, small, times, grad_norm, rewrites, weights_first, over, factor, groups)
$sum_names
$small

/* Numbers that one update needs beside the gradient: computed once, in double, by decide(). */
typedef struct step {
    real seed;               /* $(times)gradient of the cycle's mean loss with respect to one row's loss */
    bool skip;               /* leave parameters and state as they are */
    double loss;             /* of the cycle and all ranks: the mean, or the sum */
    double weight, rows;     /* sums over the cycle and all ranks */
    double grad_norm;        /* $grad_norm */
    double lr;
    double nonfinite;        /* elements of the gradient that are not finite */
//% if weights_first then
    real mean;               /* nominal / true weight$over */
//% end
//% if rewrites then
    real $factor; /* of clipping by the norm */
//% else
    real $factor; /* nominal / true weight$over, times the clip factor */
//% end
    $groups
} step;

//@ saved(parameters, gradients, rests, arrays, files)
/* The arrays of a checkpoint: parameters and optimizer state; the gradient only inside a cycle. */
typedef struct saved {
    ga_array $parameters, gradient[$gradients];
    ga_array state[STATES ? STATES : 1];
//% if rests > 0 then
    const ga_rest *rest[$rests]; /* the last elements of these */
//% end
//% if arrays > 0 then
    ga_array in_files[$arrays]; /* the same by the ranks that have them in common */
//% end
    ga_ckpt_file files[$files];
} saved;

//@ model(device, flat_parameters, flat_gradients, residues, half_sums, views, by_epoch, best, shift, state_fields, divided, own)
typedef struct model {
    ga_arena memory[ARENAS];
    $flat_parameters
    $flat_gradients
//% if residues then
    real *flat_residue;      /* what the sums over the micro-steps have rounded off */
//% end
    $state_fields
    $divided
//% if residues then
    parameters w, g, residue;
//% elseif half_sums then
    parameters w;
    gradients g;
//% else
    parameters w, g;
//% end
//% if views then
    views v;
//% end
    activations a;
//% if device then
    $own
//% else
    double *partials;        /* sums over tiles of the gradient, then of tensors */
//% end
    double sums[SUMS];       /* of the present cycle, or of an evaluation */
    double nominal;          /* weight of a full cycle over all ranks */
    step step;
    ga_cycle count;
//% if best then
    ga_best best;            /* over the evaluations so far */
//% end
//% if not device then
    ga_team *team;
    ga_threads threads;      /* of the team, and the reason */
    void (*at_boundary)(ga_worker *w, struct model *m); /* NULL, or what libNAME.a does to gradients */
//% end
    ga_comm *comm;
    ga_source train, eval;   /* the rows of the files; `eval` if it has a file of its own */
    ga_loader_config data;
    ga_dataset eval_data;
    ga_epochs epochs;        /* which micro-batches a cycle has */
    ga_loader *loader;
    ga_log *log;
    struct ga_probe *probe;  /* train-probe only */
    saved saved;
    char folder[GA_PATH_MAX]; /* of the program */
    ga_run run;              /* of this training */
    ga_ckpt *checkpoint;     /* NULL: nothing is saved */
    ga_data_file files[DATA_FILES]; /* what the rows were read from */
    char *eval_batch;        /* one micro-batch of the evaluation */
//% if shift then
    double target_shift;     /* the first target of the evaluation: sums of targets are of what they differ from it */
//% end
    uint64_t seed;
    int64_t cycles;          /* where training ends */
    int64_t schedule_total;  /* updates of the run, or epochs: what the schedule counts */
//% if by_epoch then
    int64_t epoch_cycles;    /* cycles of an epoch; micro-batches where they are carried over */
    int64_t epoch_shift;     /* of those that are done, how many this run's epochs would not have had */
//% end
    bool started;            /* the log has said so */
    bool stop, save;         /* a rank was asked to; known after the boundary */
//% if not device then
    ga_err error;            /* of worker 0 inside a cycle */
//% end
} model;

//@ functions(name, chunked, ema, device, ranks, plateau, sample, row, position, filed)
/* step.c: all of training. 0 or a negative ga_status. */
int $(name)_model_cycle(model *m, int r, ga_err *e);   /* r micro-steps and the boundary */
int $(name)_model_micro(model *m, int k, ga_err *e);   /* batch k, in a cycle of m->count.a */
int $(name)_model_boundary(model *m, ga_err *e);
int $(name)_model_refresh(model *m, ga_err *e);        /* views, after parameters were loaded */
//% if ranks then
void $(name)_model_cut(model *m);                      /* ranges, at the ends of this rank's pieces */
//% end
//% if filed then
void $(name)_model_cut_state(model *m);                /* ranges, at the ends of segments of the state's file */
//% end
int $(name)_model_evaluate_batch(model *m, ga_err *e); /* adds to m->sums */
//% if chunked and device then
int $(name)_model_forward_batch(model *m, ga_err *e);  /* the same, up to what the last layer reads */
//% end
//% if row then
int $(name)_model_forward_row(model *m, ga_err *e);    /* row 0 of the same, up to what --sample reads */
//% end
//% if position then
int $(name)_model_forward_position(model *m, size_t position, ga_err *e); /* one position, behind those before it */
//% end
//% if ema then
int $(name)_model_exchange(model *m, ga_err *e);       /* averages and parameters change places */
//% end
//% if device then
int $(name)_model_load_kernels(model *m, ga_err *e);
int $(name)_model_compile_kernels(const char *architecture, ga_err *e); /* for --offline */
int $(name)_model_push_step(model *m, ga_err *e);      /* counters and sums to the device */
int $(name)_model_download(model *m, ga_err *e);       /* the flat space to the host */
//% else
double $(name)_model_lr(const model *m, int64_t t);    /* rate of the update after t updates */
//% end

/* model.c and its parts: memory, data, files. */
int $(name)_model_open(model *m, const ga_options *o, ga_err *e);
void $(name)_model_close(model *m);
int $(name)_model_evaluate(model *m, ga_eval_event *out, ga_err *e);
int $(name)_model_save(model *m, ga_err *e);
//% if plateau then
int $(name)_model_report(model *m, double metric, ga_err *e); /* to the schedule */
//% end
int $(name)_model_save_to(model *m, const char *folder, bool served, ga_err *e);
int $(name)_model_load(model *m, const char *folder, const char *what, bool goes_on, char *path, ga_err *e);
int $(name)_model_dump(model *m, const char *folder, ga_err *e);
int $(name)_model_watch(model *m, const ga_options *o, ga_err *e);
int $(name)_model_predict(model *m, const ga_options *o, ga_err *e); /* predictions.c */
int $(name)_model_save_weights(model *m, const ga_options *o, ga_err *e);
//% if sample then
int $(name)_model_sample(model *m, const ga_options *o, ga_err *e); /* sample.c */
//% end

#endif
