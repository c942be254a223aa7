/* What Python and C both know of memory and of the wire, as tables that Python reads when it loads the library. */
#ifndef INA_LAYOUT_H
#define INA_LAYOUT_H

#include <stddef.h>
#include <stdint.h>

struct ina_field {
    const char *name;                   /* NULL ends a table; its `offset` is the size of the whole */
    uint64_t offset;
    uint64_t bytes;
};

struct ina_constant {
    const char *name;                   /* NULL ends the table */
    int64_t value;
};

extern const struct ina_field ina_core_fields[], ina_io_fields[], ina_header_fields[];
extern const struct ina_constant ina_constants[];

#endif
