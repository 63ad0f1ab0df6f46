/* safetensors_names.h: how names in files of others become those of the model. */
#ifndef GA_SAFETENSORS_NAMES_H
#define GA_SAFETENSORS_NAMES_H

#include "files/layout.h"
#include "files/safetensors_file.h"

/* Renames tensors of an open file so that they fit the array's names, where
 *   the file has no name with the first part of the model's first ("bert."): "encoder.x" becomes
 *     "bert.encoder.x"; files of a model's body alone have no such part
 *   weight and bias of a LayerNorm are called gamma and beta, as in the first files of BERT
 * A name of the model that the file has is left alone. speak: stderr says if parts were added. */
void ga_tensors_adapt(ga_tensors_file *f, const ga_array *a, bool speak);

/* Whether the name fits one of the globs, which commas separate; * stands for any characters. */
bool ga_name_fits(const char *globs, const char *name);

#endif
