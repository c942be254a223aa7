// v1model, and blocks that a program does not care about; headers_t and metadata_t are its own.
#include <core.p4>
#include <v1model.p4>

control NoChecksums(inout headers_t hdr, inout metadata_t meta) {
    apply { }
}

control PlainEgress(inout headers_t hdr, inout metadata_t meta,
                    inout standard_metadata_t standard_metadata) {
    apply { }
}

control EmitAll(packet_out packet, in headers_t hdr) {
    apply {
        packet.emit(hdr);
    }
}
