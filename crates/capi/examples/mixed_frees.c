// Memory allocated immediately (as by cudaMalloc) and freed in stream order, and the reverse.
#include "example.h"

enum { BYTES = 1 << 20 };

int main(void) {
    millpond_device_t device;
    millpond_stream_t stream;
    void *memory;
    open_device(&device);
    MUST(millpond_stream_create(&stream, device));

    MUST(millpond_malloc(&memory, BYTES, device));
    MUST(millpond_memset_async(memory, 1, BYTES, stream));
    MUST(millpond_free_async(memory, stream));
    printf("allocated at once, freed in stream order\n");

    MUST(millpond_malloc_async(&memory, BYTES, stream));
    MUST(millpond_memset_async(memory, 2, BYTES, stream));
    // The immediate free does not wait: the host must know that the work has completed.
    REFUSED(MILLPOND_ERROR_ORDER, millpond_free(memory, device));
    MUST(millpond_stream_synchronize(stream));
    MUST(millpond_free(memory, device));
    printf("allocated in stream order, freed at once after a synchronisation\n");

    MUST(millpond_free_async(NULL, stream));
    MUST(millpond_free(NULL, device));
    MUST(millpond_malloc_async(&memory, 0, stream));
    REQUIRE(memory == NULL);
    MUST(millpond_stream_destroy(stream));
    MUST(millpond_device_destroy(device));
    return 0;
}
