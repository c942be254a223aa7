// shared.p4 with another rule for slots: each job goes through its region with its own stride.
//
//     ina sim examples/three_jobs.toml --slots 64 --program examples/p4/strides.p4
//
// If the PSNs of two jobs advance together, the jobs collide only now and then, not in every slot. Strides
// are odd, so in a region of a power of two slots a job's packets in flight never collide with each other.
#include <core.p4>
#include <v1model.p4>

#define INA_LOCATION_P4     // in the place of p4src/include/location.p4
#include "../../p4src/include/headers.p4"

control Location(in ina_t ina, inout metadata_t meta) {
    apply {
        bit<32> stride = ((bit<32>)ina.job << 1) | 1;
        hash(meta.index, HashAlgorithm.identity, meta.region_offset, { ina.psn * stride }, meta.region_size);
    }
}

#include "../../p4src/shared.p4"
