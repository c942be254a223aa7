// The slot of a shared packet in its region.
//
// A job's PSNs follow each other through its region, from a start that depends on the job: if a
// job's packets in flight fit into its region they never collide, and regions may have any size.
//
// Your own program may have another rule. Define INA_LOCATION_P4 and a control Location with these
// parameters, then include shared.p4. The slot must depend only on fields that all packets of one PSN of a
// job share, and lie in the region: meta.region_offset to meta.region_offset + meta.region_size - 1. A rule
// that breaks the first condition costs time, as parts of a sum then meet in the fallback server; one that
// breaks the second disturbs other jobs. All sums stay right (docs/guides/own-rules.md).
#ifndef INA_LOCATION_P4
#define INA_LOCATION_P4

#include "headers.p4"

// Knuth's multiplicative hash: jobs that share a region start at different slots.
@noWarn("unused")   // unused if slots are hashed
const bit<32> START_OF_JOB = 0x9E3779B1;

control Location(in ina_t ina, inout metadata_t meta) {
    apply {
#if ADDRESSING == CONSECUTIVE
        hash(meta.index, HashAlgorithm.identity, meta.region_offset,
             { ina.psn + (bit<32>)ina.job * START_OF_JOB }, meta.region_size);
#elif ADDRESSING == HASHED
        // Any PSN in any slot. The byte after the PSN lets consecutive PSNs use all slots:
        // without it the low bits of the CRC are linearly dependent in small arrays.
        hash(meta.index, HashAlgorithm.crc32, meta.region_offset,
             { ina.job, ina.psn, 8w0 }, meta.region_size);
#else
        // ATP: a slot for every position of the window, and another one after a collision. The salt, which
        // counts the collisions, is in the field that other programs use for the priority.
        bit<32> position = 0;
        hash(position, HashAlgorithm.identity, 32w0, { ina.psn }, meta.window);
        hash(meta.index, HashAlgorithm.crc32, meta.region_offset,
             { ina.job, position, ina.priority }, meta.region_size);
#endif
    }
}

#endif
