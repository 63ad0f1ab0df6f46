//@ head(header, reader, tables)
$header
#include "runtime/data/data.h"
#include "runtime/data/$reader"
//% if tables.text ~= "" then

$tables
//% end

//@ open(spec, opening, parts)
/* Opens a file of rows that are predicted; targets are not read. */
static inline int open_rows(ga_predicted *r, const char *path, ga_err *e) {
    memset(r, 0, sizeof *r);
//% if parts then
    const ga_part train_files[] = {{.path = path}};
//% end
    $spec
    return $opening;
}
