// The code that the example programs share: checks of each call that print what went wrong.
#ifndef MILLPOND_EXAMPLE_H
#define MILLPOND_EXAMPLE_H

#include <millpond.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        millpond_status status_ = (call);                                                                              \
        if (status_ != MILLPOND_SUCCESS) {                                                                             \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, millpond_status_name(status_),                      \
                    millpond_last_error());                                                                            \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define REQUIRE(what)                                                                                                  \
    do {                                                                                                               \
        if (!(what)) {                                                                                                 \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #what);                                       \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define REFUSED(expected, call)                                                                                        \
    do {                                                                                                               \
        millpond_status status_ = (call);                                                                              \
        if (status_ != (expected)) {                                                                                   \
            fprintf(stderr, "%s:%d: %s where %s was due\n", __FILE__, __LINE__, millpond_status_name(status_),         \
                    millpond_status_name(expected));                                                                   \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

// Returns 1 if the program runs on a host device, which is the default, and 0 if the environment names a CUDA device.
static inline int on_host(void) { return getenv("MILLPOND_EXAMPLE_DEVICE") == NULL; }

static inline void open_device(millpond_device_t *device) {
    if (on_host()) {
        MUST(millpond_device_create_host(device, NULL));
    } else {
        MUST(millpond_device_create_cuda(device, atoi(getenv("MILLPOND_EXAMPLE_DEVICE"))));
    }
}

// A use of a whole allocation.
static inline millpond_access reads(const void *pointer) {
    millpond_access access = {pointer, 0, MILLPOND_READ};
    return access;
}

static inline millpond_access writes(const void *pointer) {
    millpond_access access = {pointer, 0, MILLPOND_WRITE};
    return access;
}

// Returns 1 if all bytes on the device have this value.
static inline int all_are(const void *pointer, size_t bytes, unsigned char value, millpond_stream_t stream) {
    unsigned char *copy = malloc(bytes);
    REQUIRE(copy != NULL);
    MUST(millpond_memcpy_dtoh(copy, pointer, bytes, stream));
    int same = 1;
    for (size_t i = 0; i < bytes; i++) same &= copy[i] == value;
    free(copy);
    return same;
}

#endif
