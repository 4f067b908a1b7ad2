// Memory of one device used by another: refused without a grant, and ordered by an event. The grant is revoked only
// when the other device's use is known to have completed.
#include "example.h"

enum { BYTES = 1 << 20 };

int main(void) {
    millpond_device_t here, there;
    millpond_stream_t own, other;
    millpond_pool_t pool;
    millpond_event_t ready;
    millpond_pool_statistics figures;
    void *memory, *copy;
    int can = 0, access = -1;
    MUST(millpond_device_create_host(&here, NULL));
    MUST(millpond_device_create_host(&there, NULL));
    MUST(millpond_stream_create(&own, here));
    MUST(millpond_stream_create(&other, there));
    MUST(millpond_pool_create(&pool, here, NULL));
    MUST(millpond_event_create(&ready));
    MUST(millpond_malloc_from_pool_async(&memory, BYTES, pool, own));
    MUST(millpond_memset_async(memory, 3, BYTES, own));
    MUST(millpond_event_record(ready, own));
    MUST(millpond_malloc_async(&copy, BYTES, other));

    REFUSED(MILLPOND_ERROR_INVALID_VALUE, millpond_memcpy_dtod_async(copy, memory, BYTES, other));
    printf("%s\n", millpond_last_error());
    MUST(millpond_device_can_access_peer(&can, there, here));
    REQUIRE(can == 1);
    MUST(millpond_pool_set_access(pool, there, MILLPOND_ACCESS_READ));
    MUST(millpond_pool_get_access(&access, pool, there));
    REQUIRE(access == MILLPOND_ACCESS_READ);

    REFUSED(MILLPOND_ERROR_ORDER, millpond_memcpy_dtod_async(copy, memory, BYTES, other));
    MUST(millpond_stream_wait_event(other, ready));
    MUST(millpond_memcpy_dtod_async(copy, memory, BYTES, other));
    REFUSED(MILLPOND_ERROR_INVALID_VALUE, millpond_memset_async(memory, 4, BYTES, other));
    REFUSED(MILLPOND_ERROR_INVALID_VALUE, millpond_pool_set_access(pool, there, MILLPOND_ACCESS_NONE));
    printf("%s\n", millpond_last_error());
    REQUIRE(all_are(copy, BYTES, 3, other));
    printf("ordered by an event\n");

    MUST(millpond_pool_set_access(pool, there, MILLPOND_ACCESS_NONE));
    REFUSED(MILLPOND_ERROR_INVALID_VALUE, millpond_memcpy_dtod_async(copy, memory, BYTES, other));
    MUST(millpond_free_async(copy, other));
    MUST(millpond_free_async(memory, own));
    MUST(millpond_stream_synchronize(own));
    MUST(millpond_stream_synchronize(other));
    MUST(millpond_pool_get_statistics(pool, &figures));
    REQUIRE(figures.used_bytes == 0 && figures.reserved_bytes == 0);
    printf("nothing is left\n");
    MUST(millpond_event_destroy(ready));
    MUST(millpond_pool_destroy(pool));
    MUST(millpond_stream_destroy(own));
    MUST(millpond_stream_destroy(other));
    MUST(millpond_device_destroy(here));
    MUST(millpond_device_destroy(there));
    return 0;
}
