// The results of a wrong order: refused, reported, or ignored. Also the live memory, as JSON.
#include "example.h"

enum { BYTES = 4096 };

static int reports;

static void report(const char *text, void *argument) {
    (void)argument;
    reports++;
    printf("report: %s\n", text);
}

// A free on a stream that is not ordered after the use.
static millpond_status wrong_free(millpond_device_t device, void **memory) {
    millpond_stream_t left, right;
    MUST(millpond_stream_create(&left, device));
    MUST(millpond_stream_create(&right, device));
    MUST(millpond_malloc_async(memory, BYTES, left));
    MUST(millpond_memset_async(*memory, 1, BYTES, left));
    millpond_status status = millpond_free_async(*memory, right);
    MUST(millpond_stream_destroy(left));
    MUST(millpond_stream_destroy(right));
    return status;
}

int main(void) {
    millpond_device_t device;
    millpond_pool_t pool;
    millpond_pool_statistics now;
    void *memory;
    char *picture;
    uint64_t value = 0;
    open_device(&device);
    MUST(millpond_device_get_default_pool(&pool, device));

    REFUSED(MILLPOND_ERROR_ORDER, wrong_free(device, &memory));
    MUST(millpond_set_name(memory, "a \"leak\""));
    MUST(millpond_memory_picture(&picture, device));
    REQUIRE(strstr(picture, "\"requested\":4096") != NULL && strstr(picture, "a \\\"leak\\\"") != NULL);
    millpond_string_free(picture);
    MUST(millpond_device_synchronize(device));
    MUST(millpond_free(memory, device));

    MUST(millpond_device_set_checks(device, MILLPOND_CHECKS_REPORT));
    MUST(millpond_device_set_report(device, report, NULL));
    MUST(wrong_free(device, &memory));
    REQUIRE(reports == 1);
    MUST(millpond_device_set_checks(device, MILLPOND_CHECKS_OFF));
    MUST(wrong_free(device, &memory));
    REQUIRE(reports == 1);
    REFUSED(MILLPOND_ERROR_INVALID_VALUE, millpond_device_set_checks(device, 3));

    MUST(millpond_device_synchronize(device));
    MUST(millpond_pool_get_statistics(pool, &now));
    REQUIRE(now.used_bytes == 0 && now.used_high_bytes == BYTES);
    MUST(millpond_pool_set_attribute(pool, MILLPOND_POOL_USED_HIGH, &value));
    MUST(millpond_pool_get_attribute(pool, MILLPOND_POOL_USED_HIGH, &value));
    REQUIRE(value == 0);
    value = 1 << 20;
    MUST(millpond_pool_set_attribute(pool, MILLPOND_POOL_RELEASE_THRESHOLD, &value));
    value = 0;
    MUST(millpond_pool_get_attribute(pool, MILLPOND_POOL_RELEASE_THRESHOLD, &value));
    REQUIRE(value == 1 << 20);
    REFUSED(MILLPOND_ERROR_INVALID_VALUE, millpond_pool_set_attribute(pool, MILLPOND_POOL_USED_CURRENT, &value));
    MUST(millpond_pool_trim_to(pool, 0));
    printf("off: nothing was said, and nothing is lost\n");
    MUST(millpond_pool_destroy(pool));
    MUST(millpond_device_destroy(device));
    return 0;
}
