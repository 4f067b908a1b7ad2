// Memory belongs to the device. Any part of the program with a handle of the device may free it, on any thread and any
// stream, if the free is ordered after every use. Memory of another device is refused, and the error names that device.
#include "example.h"
#include <pthread.h>

enum { BYTES = 1 << 16 };

static millpond_device_t mine;
static millpond_event_t ready;
static void *memory;

static void *other_part(void *argument) {
    millpond_stream_t stream;
    (void)argument;
    MUST(millpond_stream_create(&stream, mine));
    MUST(millpond_stream_wait_event(stream, ready));
    MUST(millpond_free_async(memory, stream));
    MUST(millpond_stream_synchronize(stream));
    MUST(millpond_stream_destroy(stream));
    MUST(millpond_device_destroy(mine));
    return NULL;
}

int main(void) {
    millpond_device_t device, stranger;
    millpond_stream_t stream, elsewhere;
    pthread_t thread;
    open_device(&device);
    MUST(millpond_device_retain(&mine, device));
    MUST(millpond_stream_create(&stream, device));
    MUST(millpond_event_create(&ready));
    MUST(millpond_malloc_async(&memory, BYTES, stream));
    MUST(millpond_memset_async(memory, 3, BYTES, stream));
    MUST(millpond_event_record(ready, stream));
    REQUIRE(pthread_create(&thread, NULL, other_part, NULL) == 0);
    pthread_join(thread, NULL);
    printf("freed by another handle on another thread\n");

    MUST(millpond_device_create_host(&stranger, NULL));
    MUST(millpond_stream_create(&elsewhere, stranger));
    MUST(millpond_malloc_async(&memory, BYTES, stream));
    REFUSED(MILLPOND_ERROR_INVALID_VALUE, millpond_free_async(memory, elsewhere));
    printf("%s\n", millpond_last_error());
    MUST(millpond_free_async(memory, stream));

    MUST(millpond_event_destroy(ready));
    MUST(millpond_stream_destroy(stream));
    MUST(millpond_stream_destroy(elsewhere));
    MUST(millpond_device_destroy(stranger));
    MUST(millpond_device_destroy(device));
    return 0;
}
