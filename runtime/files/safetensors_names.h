/* safetensors_names.h: adapts names in files of other writers to those of the model. */
#ifndef GA_SAFETENSORS_NAMES_H
#define GA_SAFETENSORS_NAMES_H

#include "files/layout.h"
#include "files/safetensors_file.h"

/* Renames tensors of an open file to the array's names in two cases:
 *   no name in the file has the prefix of the model's first name ("bert."), as in files of a model's
 *     body alone: "encoder.x" becomes "bert.encoder.x"
 *   weight and bias of a LayerNorm are named gamma and beta, as in the first files of BERT
 * Names that already fit stay. speak: stderr says how many prefixes were added. */
void ga_tensors_adapt(ga_tensors_file *f, const ga_array *a, bool speak);

/* Whether the name fits one of the globs, separated by commas; * stands for any characters. */
bool ga_name_fits(const char *globs, const char *name);

#endif
