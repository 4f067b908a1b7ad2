// Pointers that are not the start of a live allocation: refused with the allocation there or the nearest one. Nothing
// is lost.
#include "example.h"

enum { BYTES = 4096 };

int main(void) {
    millpond_device_t device;
    millpond_stream_t stream;
    unsigned char *memory;
    int local = 0;
    open_device(&device);
    MUST(millpond_stream_create(&stream, device));
    MUST(millpond_malloc_async((void **)&memory, BYTES, stream));
    MUST(millpond_set_name(memory, "table"));

    REFUSED(MILLPOND_ERROR_INVALID_VALUE, millpond_free_async(memory + 64, stream));
    printf("%s\n", millpond_last_error());
    REFUSED(MILLPOND_ERROR_INVALID_VALUE, millpond_free_async(&local, stream));
    printf("%s\n", millpond_last_error());
    REFUSED(MILLPOND_ERROR_INVALID_VALUE, millpond_free(memory + 64, device));
    // More bytes than the allocation has.
    REFUSED(MILLPOND_ERROR_INVALID_VALUE, millpond_memset_async(memory + 64, 0, BYTES, stream));

    MUST(millpond_memset_async(memory, 9, BYTES, stream));
    REQUIRE(all_are(memory, BYTES, 9, stream));
    printf("nothing is lost\n");
    MUST(millpond_free_async(memory, stream));
    REFUSED(MILLPOND_ERROR_INVALID_VALUE, millpond_free_async(memory, stream));
    printf("%s\n", millpond_last_error());
    MUST(millpond_stream_destroy(stream));
    MUST(millpond_device_destroy(device));
    return 0;
}
