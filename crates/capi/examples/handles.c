// Invalid handles: each is refused with an error text.
#include "example.h"

int main(void) {
    millpond_device_t device;
    millpond_stream_t stream, again;
    void *memory;
    open_device(&device);
    MUST(millpond_stream_create(&stream, device));
    MUST(millpond_stream_destroy(stream));
    REFUSED(MILLPOND_ERROR_INVALID_HANDLE, millpond_stream_destroy(stream));
    MUST(millpond_stream_create(&again, device));
    REFUSED(MILLPOND_ERROR_INVALID_HANDLE, millpond_malloc_async(&memory, 512, stream));
    printf("stale: %s\n", millpond_last_error());
    REFUSED(MILLPOND_ERROR_INVALID_HANDLE, millpond_malloc_async(&memory, 512, NULL));
    REFUSED(MILLPOND_ERROR_INVALID_VALUE, millpond_malloc_async(NULL, 512, again));
    printf("null: %s\n", millpond_last_error());
    REFUSED(MILLPOND_ERROR_INVALID_HANDLE, millpond_stream_synchronize((millpond_stream_t)(void *)device));
    REFUSED(MILLPOND_ERROR_INVALID_HANDLE, millpond_stream_synchronize((millpond_stream_t)(void *)&device));
    printf("foreign: %s\n", millpond_last_error());
    // Without CUDA, or without that device, this returns a status and does not end the program.
    millpond_device_t none;
    millpond_status status = millpond_device_create_cuda(&none, 1000);
    REQUIRE(status != MILLPOND_SUCCESS && status != MILLPOND_ERROR_INTERNAL);
    REQUIRE(strcmp(millpond_status_name(MILLPOND_ERROR_ORDER), "MILLPOND_ERROR_ORDER") == 0);
    REQUIRE(strcmp(millpond_status_name(-1), "unknown") == 0 && strlen(millpond_version()) >= 5);
    MUST(millpond_stream_destroy(again));
    MUST(millpond_device_destroy(device));
    return 0;
}
