// Several threads at once, each with its own stream, and all with one common stream.
#include "example.h"
#include <pthread.h>

enum { THREADS = 4, ROUNDS = 3000 };

static millpond_device_t device;
static millpond_stream_t shared;

static void *work(void *argument) {
    millpond_stream_t own;
    millpond_event_t event;
    void *mine, *ours;
    (void)argument;
    MUST(millpond_stream_create(&own, device));
    MUST(millpond_event_create(&event));
    for (int round = 0; round < ROUNDS; round++) {
        MUST(millpond_malloc_async(&mine, (size_t)512 << (round % 8), own));
        MUST(millpond_malloc_async(&ours, 4096, shared));
        MUST(millpond_memset_async(mine, round, 512, own));
        if (round % 16 == 0) {
            // Passed on to the common stream.
            MUST(millpond_event_record(event, own));
            MUST(millpond_stream_wait_event(shared, event));
            MUST(millpond_free_async(mine, shared));
        } else {
            MUST(millpond_free_async(mine, own));
        }
        MUST(millpond_free_async(ours, shared));
    }
    MUST(millpond_event_destroy(event));
    MUST(millpond_stream_destroy(own));
    return NULL;
}

int main(void) {
    pthread_t threads[THREADS];
    millpond_pool_t pool;
    millpond_pool_statistics now;
    open_device(&device);
    MUST(millpond_stream_create(&shared, device));
    for (int i = 0; i < THREADS; i++) REQUIRE(pthread_create(&threads[i], NULL, work, NULL) == 0);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    MUST(millpond_device_synchronize(device));
    MUST(millpond_device_get_pool(&pool, device));
    MUST(millpond_pool_get_statistics(pool, &now));
    REQUIRE(now.used_bytes == 0);
    MUST(millpond_pool_destroy(pool));
    MUST(millpond_stream_destroy(shared));
    MUST(millpond_device_destroy(device));
    printf("threads done\n");
    return 0;
}
