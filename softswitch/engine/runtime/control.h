/* The control plane of a generated pipeline: included at its end, where struct p4_pipeline, p4_table_kinds,
 * p4_registers and p4_counters are known. Python calls these by name; it has checked every argument.
 * Numbers wider than 64 bits cross as 64-bit words, the least significant first.
 */
#ifndef P4_CONTROL_H
#define P4_CONTROL_H

#define P4_EXPORT __attribute__((visibility("default")))

P4_INLINE uint8_t *p4_at(struct p4_pipeline *s, size_t offset)
{
    return (uint8_t *)s + offset;
}

P4_INLINE uint8_t *p4_pointer_at(struct p4_pipeline *s, size_t offset)
{
    uint8_t *pointer;
    memcpy(&pointer, p4_at(s, offset), sizeof pointer);
    return pointer;
}

P4_EXPORT int p4_control_insert(struct p4_pipeline *s, uint32_t table, const uint64_t *match,
                                uint64_t position, uint32_t action, const uint64_t *args)
{
    return p4_table_insert(&s->tables[table], match, position, action, args);
}

P4_EXPORT int p4_control_modify(struct p4_pipeline *s, uint32_t table, const uint64_t *match,
                                uint64_t position, uint32_t action, const uint64_t *args)
{
    return p4_table_modify(&s->tables[table], match, position, action, args);
}

P4_EXPORT int p4_control_delete(struct p4_pipeline *s, uint32_t table, const uint64_t *match,
                                uint64_t position)
{
    return p4_table_delete(&s->tables[table], match, position);
}

P4_EXPORT void p4_control_default(struct p4_pipeline *s, uint32_t table, uint32_t action,
                                  const uint64_t *args)
{
    const struct p4_table_kind *kind = &p4_table_kinds[table];
    ((struct p4_match *)(void *)p4_at(s, kind->default_match))->action = action;
    p4_fill(kind, p4_at(s, kind->default_args), action, args);
}

/* A part of an entry or, without a match, of the default action. NULL: no such part, or out of memory. */
P4_EXPORT void *p4_control_part(struct p4_pipeline *s, uint32_t table, uint32_t part, const uint64_t *match,
                                uint64_t position)
{
    const struct p4_table_kind *kind = &p4_table_kinds[table];
    if (!match)
        return kind->default_parts[part] ? p4_at(s, kind->default_parts[part]) : NULL;
    if (kind->kind == P4_FIXED) {
        struct p4_hits *entries = (struct p4_hits *)(void *)p4_at(s, kind->hits);
        return part == P4_HITS && kind->hits ? &entries[position] : NULL;
    }
    uint8_t *slot = p4_table_slot(&s->tables[table], match, position);
    return slot && kind->parts[part] ? slot + kind->parts[part] : NULL;
}

P4_EXPORT struct p4_meter *p4_control_meter(struct p4_pipeline *s, uint32_t meter, uint64_t index)
{
    return (struct p4_meter *)(void *)p4_pointer_at(s, p4_meters[meter]) + index;
}

/* The waiting digests, or NULL if the program has none; the caller sets `used` to 0 after reading them. */
P4_EXPORT struct p4_digests *p4_control_digests(struct p4_pipeline *s)
{
    return s->digests;
}

/* The cells of a counter: packets and bytes of each. */
P4_EXPORT uint64_t *p4_control_counter(struct p4_pipeline *s, uint32_t counter)
{
    return (uint64_t *)(void *)p4_pointer_at(s, p4_counters[counter].cells);
}

P4_INLINE uint8_t *p4_register_cell(struct p4_pipeline *s, uint32_t id, uint64_t index)
{
    const struct p4_register *r = &p4_registers[id];
    return p4_pointer_at(s, r->slots) + index * r->stride + r->cell;
}

/* The name of a register, NULL beyond the last one. */
P4_EXPORT const char *p4_control_register_name(const struct p4_pipeline *s, uint32_t id)
{
    (void)s;
    return p4_registers[id].name;
}

P4_EXPORT void p4_control_read_register(struct p4_pipeline *s, uint32_t id, uint64_t index, uint64_t words[2])
{
    words[0] = words[1] = 0;
    memcpy(words, p4_register_cell(s, id, index), p4_registers[id].bytes);
}

P4_EXPORT void p4_control_write_register(struct p4_pipeline *s, uint32_t id, uint64_t index,
                                         const uint64_t words[2])
{
    memcpy(p4_register_cell(s, id, index), words, p4_registers[id].bytes);
}

#endif
