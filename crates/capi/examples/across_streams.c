// Memory allocated on one stream, used and freed on another: refused without an event between them, right with one.
#include "example.h"

enum { BYTES = 4096 };

static unsigned char *memory;

// The kernel, if kernels are C functions.
static void fill(void *value) { memset(memory, *(unsigned char *)value, BYTES); }

int main(void) {
    millpond_device_t device;
    millpond_stream_t left, right;
    millpond_event_t event;
    static unsigned char five = 5;
    open_device(&device);
    MUST(millpond_stream_create(&left, device));
    MUST(millpond_stream_create(&right, device));
    MUST(millpond_event_create(&event));

    MUST(millpond_malloc_async((void **)&memory, BYTES, left));
    MUST(millpond_set_name(memory, "weights"));
    millpond_access access = writes(memory);
    if (on_host()) {
        MUST(millpond_launch(left, fill, &five, &access, 1));
    } else {
        MUST(millpond_memset_async(memory, five, BYTES, left));
    }

    REFUSED(MILLPOND_ERROR_ORDER, millpond_free_async(memory, right));
    printf("refused: %s\n", millpond_last_error());
    millpond_access part = {memory + 100, 10, MILLPOND_READ};
    REFUSED(MILLPOND_ERROR_ORDER, millpond_declare(right, &part, 1));

    MUST(millpond_event_record(event, left));
    MUST(millpond_stream_wait_event(right, event));
    MUST(millpond_declare(right, &part, 1));
    REQUIRE(all_are(memory, BYTES, 5, right));
    MUST(millpond_free_async(memory, right));
    printf("freed on the other stream, after an event\n");

    MUST(millpond_event_destroy(event));
    MUST(millpond_stream_destroy(left));
    MUST(millpond_stream_destroy(right));
    MUST(millpond_device_destroy(device));
    return 0;
}
