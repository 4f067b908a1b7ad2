// CUDA's driver calls, for programs that submit work of their own beside Millpond's entry points for trusted programs.
// The library is found at run time, as Millpond finds it: by MILLPOND_LIBCUDA, or the system's.
#ifndef MILLPOND_TRUSTED_H
#define MILLPOND_TRUSTED_H

#include "example.h"
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <time.h>

typedef void *stream_t;
typedef uint64_t address_t;

// Name, arguments.
#define CALLS(call)                                                                                                    \
    call(cuInit, (unsigned)) call(cuDeviceGetCount, (int *)) call(cuDevicePrimaryCtxRetain, (void **, int))            \
    call(cuCtxSetCurrent, (void *)) call(cuCtxGetCurrent, (void **)) call(cuCtxSynchronize, (void))                    \
    call(cuStreamCreate, (stream_t *, unsigned)) call(cuStreamSynchronize, (stream_t))                                 \
    call(cuStreamWaitEvent, (stream_t, void *, unsigned)) call(cuEventCreate, (void **, unsigned))                     \
    call(cuEventRecord, (void *, stream_t)) call(cuMemsetD8Async, (address_t, unsigned char, size_t, stream_t))        \
    call(cuMemcpyDtoDAsync_v2, (address_t, address_t, size_t, stream_t))                                               \
    call(cuMemcpyDtoHAsync_v2, (void *, address_t, size_t, stream_t))                                                  \
    call(cuLaunchHostFunc, (stream_t, void (*)(void *), void *))                                                       \
    call(cuStreamBeginCapture_v2, (stream_t, int)) call(cuStreamEndCapture, (stream_t, void **))                       \
    call(cuGraphInstantiateWithFlags, (void **, void *, uint64_t)) call(cuGraphLaunch, (void *, stream_t))             \
    call(cuGraphExecDestroy, (void *))

#define DECLARE(name, arguments) static int(*name) arguments;
CALLS(DECLARE)
#undef DECLARE

#define CUDA(call)                                                                                                     \
    do {                                                                                                               \
        int code_ = (call);                                                                                            \
        if (code_ != 0) {                                                                                              \
            fprintf(stderr, "%s:%d: %s: code %d\n", __FILE__, __LINE__, #call, code_);                                 \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

// A capture of PyTorch's forbids unsafe calls to all threads.
enum { DEVICE = 0, NON_BLOCKING = 1, NO_TIMING = 2, GLOBAL = 0 };
// The handle of the calling thread's default stream.
#define PER_THREAD ((stream_t)2)

// Makes the primary context current on this thread.
static inline void use_device(void) {
    void *context = NULL;
    CUDA(cuInit(0));
    CUDA(cuDevicePrimaryCtxRetain(&context, DEVICE));
    CUDA(cuCtxSetCurrent(context));
}

static inline void load_cuda(void) {
    const char *given = getenv("MILLPOND_LIBCUDA");
    void *library = dlopen(given != NULL && *given != 0 ? given : "libcuda.so.1", RTLD_NOW);
    REQUIRE(library != NULL);
#define FIND(name, arguments)                                                                                          \
    *(void **)&name = dlsym(library, #name);                                                                           \
    REQUIRE(name != NULL);
    CALLS(FIND)
#undef FIND
}

static inline stream_t new_stream(void) {
    stream_t stream = NULL;
    CUDA(cuStreamCreate(&stream, NON_BLOCKING));
    return stream;
}

// A gate that keeps a stream busy until it is opened.
static atomic_int gate_is_open;

static void gate(void *data) {
    (void)data;
    struct timespec rest = {0, 500 * 1000};
    while (!atomic_load(&gate_is_open)) {
        nanosleep(&rest, NULL);
    }
}

static inline void keep_busy(stream_t stream) { CUDA(cuLaunchHostFunc(stream, gate, NULL)); }
static inline void open_gate(void) { atomic_store(&gate_is_open, 1); }

static inline void *take(size_t bytes, stream_t stream) {
    void *pointer = NULL;
    MUST(millpond_trusted_malloc(&pointer, bytes, DEVICE, stream));
    return pointer;
}

static inline void give(void *pointer, stream_t stream) { MUST(millpond_trusted_free(pointer, DEVICE, stream)); }

static inline void fill(void *pointer, unsigned char value, size_t bytes, stream_t stream) {
    CUDA(cuMemsetD8Async((address_t)pointer, value, bytes, stream));
}

static inline void copy(void *to, const void *from, size_t bytes, stream_t stream) {
    CUDA(cuMemcpyDtoDAsync_v2((address_t)to, (address_t)from, bytes, stream));
}

// Returns the number of bytes that have another value. The stream must not be kept busy.
static inline size_t wrong_bytes(const void *pointer, unsigned char value, size_t bytes, stream_t stream) {
    unsigned char *host = malloc(bytes);
    REQUIRE(host != NULL);
    CUDA(cuMemcpyDtoHAsync_v2(host, (address_t)pointer, bytes, stream));
    CUDA(cuStreamSynchronize(stream));
    size_t wrong = 0;
    for (size_t i = 0; i < bytes; i++) {
        wrong += host[i] != value;
    }
    free(host);
    return wrong;
}

#endif
