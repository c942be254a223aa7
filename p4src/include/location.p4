// Which slot of its region a shared packet meets.
//
// A job's PSNs follow each other through its region, from a start that depends on the job: a job
// whose packets under way fit into its region never meets itself, and regions may have any size.
//
// A program of your own may have another rule. // Define INA_LOCATION_P4 and a control Location with these parameters, then include shared.p4. The slot
// must follow from what all packets of one PSN of a job have in common, and lie in the region:
// meta.region_offset to meta.region_offset + meta.region_size - 1. A rule that breaks the first costs
// time, for parts of a sum meet in the fallback server then; one that breaks the second disturbs other
// jobs. No sum is ever wrong for it (docs/guides/own-rules.md).
#ifndef INA_LOCATION_P4
#define INA_LOCATION_P4

#include "headers.p4"

// Knuth's multiplicative hash: jobs that share a region start apart.
@noWarn("unused")   // not where slots are hashed
const bit<32> START_OF_JOB = 0x9E3779B1;

control Location(in ina_t ina, inout metadata_t meta) {
    apply {
#if ADDRESSING == CONSECUTIVE
        hash(meta.index, HashAlgorithm.identity, meta.region_offset,
             { ina.psn + (bit<32>)ina.job * START_OF_JOB }, meta.region_size);
#elif ADDRESSING == HASHED
        // Every PSN anywhere. The byte behind it lets consecutive PSNs meet as many slots as there are:
        // without it the low bits of the CRC are linearly dependent in small arrays.
        hash(meta.index, HashAlgorithm.crc32, meta.region_offset,
             { ina.job, ina.psn, 8w0 }, meta.region_size);
#else
        // ATP: a slot for every position of the window, and another for one that collided. The salt,
        // which counts its collisions, stands where other programs have a priority.
        bit<32> position = 0;
        hash(position, HashAlgorithm.identity, 32w0, { ina.psn }, meta.window);
        hash(meta.index, HashAlgorithm.crc32, meta.region_offset,
             { ina.job, position, ina.priority }, meta.region_size);
#endif
    }
}

#endif
