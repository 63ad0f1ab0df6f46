//@ head(header, half)
$header
//% if half then
#include "runtime/base/$half.h"
//% end
#include "runtime/files/predictions.h"
#include "runtime/files/weights.h"

//@ predict(name, row, width, form, reason, type, element, output, device, apart, ema)
/* Adds the outputs of the first `rows` rows of the batch. */
static int add_outputs(model *m, ga_predictions *p, int64_t rows, ga_err *e) {
//% if apart then
    static _Alignas(8) char row[$width * $element];
    const size_t count = $(apart.count), bytes = $(apart.width) * $element, apart = $(apart.row) * $element;
    for (int64_t i = 0; i < rows; i++) {
        const ga_address from = $output + (ga_address)i * count * apart;
        GA_TRY(ga_device_download_rows(m->device, row, from, count, bytes, apart, e));
        GA_TRY(ga_predictions_add(p, row, $type, 1, e));
    }
    return 0;
//% elseif device then
    static _Alignas(8) char row[$width * $element];
    for (int64_t i = 0; i < rows; i++) {
        GA_TRY(ga_device_download(m->device, row, $output + (ga_address)i * sizeof row, sizeof row, e));
        GA_TRY(ga_predictions_add(p, row, $type, 1, e));
    }
    return 0;
//% else
    return ga_predictions_add(p, $output, $type, rows, e);
//% end
}

static int predict_rows(model *m, ga_predicted *r, ga_predictions *p, ga_err *e) {
    int64_t rows;
    while ((rows = ga_predicted_next(r, B, m->eval_batch, e)) > 0) {
        GA_TRY($(name)_model_evaluate_batch(m, e));
        GA_TRY(add_outputs(m, p, rows, e));
    }
    return (int)rows;
}

/* Writes the outputs for the rows of a file: those of an evaluation. */
int $(name)_model_predict(model *m, const ga_options *o, ga_err *e) {
    static const int64_t SHAPE[] = {$(row.extents)};
    static ga_predictions p;
    ga_predicted r;
//% if ema then
    GA_TRY($(name)_model_exchange(m, e)); /* of all ranks; nothing else is done with the parameters */
//% end
    if (ga_comm_rank(m->comm) != 0) return 0;
//% if not form then
    if (o->probabilities) return ga_fail(e, GA_INPUT, $reason);
    const ga_output_form form = GA_LOGITS;
//% else
    const ga_output_form form = o->probabilities ? GA_$form : GA_LOGITS;
//% end
    int code = open_rows(&r, o->predict, e);
    if (code == 0) code = ga_predictions_begin(&p, o->out, o->predict, SHAPE, $(row.rank), form, e);
    if (code == 0) code = ga_predictions_end(&p, predict_rows(m, &r, &p, e), e);
    ga_predicted_close(&r);
    if (code == 0 && !o->quiet) ga_say("%s: the outputs for %lld row%s of %s", o->out, (long long)p.rows,
                                       p.rows == 1 ? "" : "s", o->predict);
    return code;
}

//@ weights(name, identity, bytes, rows, device, half, narrow, ema)
//% if half then
static uint16_t narrow(float x) { return $(half)_narrow(x).bits; }

//% end
/* Writes the weights of $(name)_predict.h. */
int $(name)_model_save_weights(model *m, const ga_options *o, ga_err *e) {
    static const ga_weight WEIGHTS[] = {
        $rows
    };
//% if ema then
    GA_TRY($(name)_model_exchange(m, e)); /* of all ranks; nothing else is done with the parameters */
//% end
    if (ga_comm_rank(m->comm) != 0) return 0;
//% if device then
    GA_TRY($(name)_model_download(m, e));
//% end
    return ga_weights_save(o->save_weights, &(ga_weights){.name = "$name", .model = $identity, .weight = WEIGHTS,
        .count = sizeof WEIGHTS / sizeof *WEIGHTS, .bytes = $bytes, .flat = m->flat_w, .type = REAL,
        .narrow = $narrow}, e);
}
