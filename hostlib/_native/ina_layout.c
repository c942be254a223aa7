/* Shared layout of memory and packets, as tables that Python reads when it loads the library; from the
   same lists that declare it. */
#include "ina_fallback.h"
#include "ina_window.h"

#include <stddef.h>

struct ina_field {
    const char *name;                   /* NULL ends a table; its `offset` is the size of the whole */
    uint64_t offset;
    uint64_t bytes;
};

struct ina_constant {
    const char *name;                   /* NULL ends the table */
    int64_t value;
};

#define ROW(structure, field) {#field, offsetof(structure, field), sizeof(((structure *)0)->field)},

#define FIELD(type, name, ...) ROW(struct ina_core, name)
const struct ina_field ina_core_fields[] = {INA_CORE_FIELDS(FIELD, FIELD) {NULL, sizeof(struct ina_core), 0}};
#undef FIELD

#define FIELD(type, name) ROW(struct ina_io, name)
const struct ina_field ina_io_fields[] = {INA_IO_FIELDS(FIELD, FIELD) {NULL, sizeof(struct ina_io), 0}};
#undef FIELD

#define FIELD(name, bytes) ROW(struct ina_header, name)
const struct ina_field ina_header_fields[] = {INA_HEADER_FIELDS(FIELD) {NULL, sizeof(struct ina_header), 0}};
#undef FIELD

#define CONSTANT(name, ...) {#name, name},
const struct ina_constant ina_constants[] = {
    INA_WIRE_CONSTANTS(CONSTANT)
    INA_CHAIN_FLAGS(CONSTANT)
    INA_KEPT_FLAGS(CONSTANT)
    INA_MARK_FLAGS(CONSTANT)
    INA_PATTERNS(CONSTANT)
    INA_COUNTERS(CONSTANT)
    INA_PUMPED(CONSTANT)
    FALLBACK_CONSTANTS(CONSTANT)
    FALLBACK_COUNTERS(CONSTANT)
    CONSTANT(INA_ALL_WAIT)
    CONSTANT(INA_WINDOW_STATE)
    {NULL, 0},
};
