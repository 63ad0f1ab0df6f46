/* columns.c: host.csv_line and host.csv_columns: what gagen has to know of the columns of CSV files before
 * it scans them, and of the training rows after. */
#include "host.h"
#include "data/csv.h"
#include "data/data.h"

#include <math.h>

int ga_csv_line(lua_State *L) {
    ga_csv_cells c;
    ga_err e = {0};
    const char *path = luaL_checkstring(L, 1);
    if (ga_csv_cells_open(&c, path, &e) < 0) return ga_host_refuse(L, "%s", e.msg);
    lua_newtable(L);
    int code;
    do {
        code = ga_csv_cell(&c, &e);
        if (code <= 0) break;
        lua_pushlstring(L, c.cell, c.length < GA_CSV_CELL_MAX ? c.length : GA_CSV_CELL_MAX);
        lua_rawseti(L, -2, (lua_Integer)c.column);
    } while (c.more && c.column < GA_CSV_COLUMNS_MAX);
    if (code > 0 && c.more) code = ga_csv_refuse(&c, "more than 1048576 columns", &e);
    ga_csv_cells_close(&c);
    if (code < 0) return ga_host_refuse(L, "%s", e.msg);
    return code > 0 ? 1 : ga_host_refuse(L, "%s: no rows found, at least one expected", path);
}

/* Indices of Lua's stack: the arguments, the result, and tables { text = true } by column. */
enum { ARGUMENTS = 1, RESULT, KNOWN, ELSEWHERE };

/* Sums of a column of numbers over the training rows; `sum` is of squared differences in the second pass. */
typedef struct sums {
    double sum, mean, low, high;
    bool number, category;
} sums;

typedef struct walk {
    lua_State *L;
    ga_csv_cells cells;
    sums *column;
    int64_t columns, row, rows, trained; /* rows: of all files; trained: those for training */
    bool *eval;                          /* of each row: it is not for training */
    bool second;                         /* the second pass */
    int file;
} walk;

/* Element i, from 0, of the array in field `name` of the arguments; false without the array. */
static bool flag(lua_State *L, const char *name, int64_t i) {
    bool is = false;
    if (lua_getfield(L, ARGUMENTS, name) == LUA_TTABLE) {
        lua_rawgeti(L, -1, (lua_Integer)i + 1);
        is = lua_toboolean(L, -1);
        lua_pop(L, 1);
    }
    lua_pop(L, 1);
    return is;
}

static int64_t integer(lua_State *L, const char *name) {
    lua_getfield(L, ARGUMENTS, name);
    const int64_t value = lua_tointeger(L, -1);
    lua_pop(L, 1);
    return value;
}

/* Whether the cell's text is new to the table of its column in `tables`; it is known from then on. */
static bool is_new(walk *w, int tables) {
    lua_State *L = w->L;
    lua_rawgeti(L, tables, (lua_Integer)w->cells.column);
    lua_pushlstring(L, w->cells.cell, w->cells.length);
    const bool known = lua_rawget(L, -2) != LUA_TNIL;
    lua_pop(L, 1);
    if (!known) {
        lua_pushlstring(L, w->cells.cell, w->cells.length);
        lua_pushboolean(L, 1);
        lua_rawset(L, -3);
    }
    lua_pop(L, 1);
    return !known;
}

/* Appends the value on top of the stack to `list` of the column's result. */
static void append(walk *w, const char *list) {
    lua_State *L = w->L;
    lua_rawgeti(L, RESULT, (lua_Integer)w->cells.column);
    lua_getfield(L, -1, list);
    lua_pushvalue(L, -3);
    lua_rawseti(L, -2, (lua_Integer)lua_rawlen(L, -2) + 1);
    lua_pop(L, 3);
}

static void take_text(walk *w, bool eval) {
    lua_State *L = w->L;
    if (w->cells.length > GA_CSV_CELL_MAX || !is_new(w, eval ? ELSEWHERE : KNOWN)) return;
    if (!eval) {
        lua_pushlstring(L, w->cells.cell, w->cells.length);
        append(w, "values");
        return;
    }
    lua_createtable(L, 0, 3);
    lua_pushlstring(L, w->cells.cell, w->cells.length);
    lua_setfield(L, -2, "text");
    lua_pushinteger(L, w->file);
    lua_setfield(L, -2, "file");
    lua_pushinteger(L, (lua_Integer)w->cells.line);
    lua_setfield(L, -2, "line");
    append(w, "others");
}

static void take_number(walk *w, sums *c) {
    double value;
    if (!ga_number_parse(w->cells.cell, w->cells.length, &value)) return; /* refused by the scan */
    if (w->second) {
        c->sum += (value - c->mean) * (value - c->mean);
        return;
    }
    c->sum += value;
    c->low = w->trained == 0 || value < c->low ? value : c->low;
    c->high = w->trained == 0 || value > c->high ? value : c->high;
}

static int take_row(walk *w, ga_err *e) {
    const bool eval = w->row >= w->rows || w->eval[w->row];
    for (bool more = true; more; more = w->cells.more) {
        const int code = ga_csv_cell(&w->cells, e);
        if (code <= 0) return code;
        if (w->cells.column > w->columns) continue; /* refused by the scan */
        sums *c = &w->column[w->cells.column - 1];
        if (c->category && !w->second) take_text(w, eval);
        if (c->number && !eval) take_number(w, c);
    }
    w->row++;
    w->trained += !eval;
    return 1;
}

static int walk_file(walk *w, const char *path, bool header, ga_err *e) {
    GA_TRY(ga_csv_cells_open(&w->cells, path, e));
    int code = 1;
    while (header && code == 1 && (code = ga_csv_cell(&w->cells, e)) == 1) header = w->cells.more;
    while (code == 1) code = take_row(w, e);
    ga_csv_cells_close(&w->cells);
    return code;
}

static int walk_files(walk *w, ga_err *e) {
    lua_State *L = w->L;
    w->row = w->trained = 0;
    lua_getfield(L, ARGUMENTS, "header");
    const bool header = lua_toboolean(L, -1);
    lua_getfield(L, ARGUMENTS, "files");
    const lua_Integer files = luaL_len(L, -1);
    for (w->file = 1; w->file <= files; w->file++) {
        lua_rawgeti(L, -1, w->file);
        GA_TRY(walk_file(w, lua_tostring(L, -1), header, e));
        lua_pop(L, 1);
    }
    lua_pop(L, 2);
    return GA_OK;
}

/* Marks the rows that the split takes for evaluation. */
static void mark(walk *w) {
    lua_State *L = w->L;
    const ga_split split = {.rows = w->rows, .fold = (int)integer(L, "fold"), .of = (int)integer(L, "of"),
                            .seed = (uint64_t)integer(L, "seed"), .eval_rows = integer(L, "eval_rows")};
    for (int64_t i = 0; i < w->rows; i++) w->eval[i] = false;
    if (split.of == 0 && split.eval_rows == 0) return;
    for (int64_t i = ga_split_count(&split, true); i-- > 0;) w->eval[ga_split_row(&split, true, i)] = true;
}

static void begin(walk *w) {
    lua_State *L = w->L;
    w->columns = integer(L, "columns");
    w->rows = integer(L, "rows");
    w->column = lua_newuserdatauv(L, (size_t)w->columns * sizeof *w->column, 0);
    w->eval = lua_newuserdatauv(L, (size_t)w->rows + 1, 0);
    mark(w);
    for (int64_t i = 0; i < w->columns; i++) {
        w->column[i] = (sums){.number = flag(L, "numbers", i), .category = flag(L, "categories", i)};
        lua_newtable(L);
        if (w->column[i].category) {
            lua_newtable(L);
            lua_setfield(L, -2, "values");
            lua_newtable(L);
            lua_setfield(L, -2, "others");
        }
        lua_rawseti(L, RESULT, (lua_Integer)i + 1);
        for (int tables = KNOWN; tables <= ELSEWHERE; tables++) {
            lua_newtable(L);
            lua_rawseti(L, tables, (lua_Integer)i + 1);
        }
    }
}

static void set_number(lua_State *L, const char *name, double value) {
    lua_pushnumber(L, value);
    lua_setfield(L, -2, name);
}

static void finish_first(walk *w) {
    for (int64_t i = 0; i < w->columns; i++) {
        w->column[i].mean = w->column[i].sum / (double)w->trained;
        w->column[i].sum = 0;
    }
    w->second = true;
}

static void finish_second(walk *w) {
    for (int64_t i = 0; i < w->columns; i++) {
        const sums *c = &w->column[i];
        if (!c->number) continue;
        lua_rawgeti(w->L, RESULT, (lua_Integer)i + 1);
        set_number(w->L, "mean", c->mean);
        set_number(w->L, "std", sqrt(c->sum / (double)w->trained));
        set_number(w->L, "low", c->low);
        set_number(w->L, "high", c->high);
        lua_pop(w->L, 1);
    }
}

int ga_csv_columns(lua_State *L) {
    ga_err e = {0};
    walk w = {.L = L};
    luaL_checktype(L, ARGUMENTS, LUA_TTABLE);
    lua_settop(L, ARGUMENTS);
    for (int table = RESULT; table <= ELSEWHERE; table++) lua_newtable(L);
    begin(&w);
    if (walk_files(&w, &e) < 0) return ga_host_refuse(L, "%s", e.msg);
    finish_first(&w);
    lua_getfield(L, ARGUMENTS, "numbers");
    if (lua_istable(L, -1) && walk_files(&w, &e) < 0) return ga_host_refuse(L, "%s", e.msg);
    finish_second(&w);
    lua_pushvalue(L, RESULT);
    return 1;
}
