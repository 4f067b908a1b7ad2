/* A program that uses CUDA's driver API without Millpond: it imports memory that another process exported as files,
 * and compares the content.
 *
 *     plain LIBRARY DEVICE
 *
 * LIBRARY is the driver's (libcuda.so.1). The files come over the socket that is its standard input, in one packet with
 * the numbers below. The exit status is 0 if the content is right, 3 if it is wrong, 2 for any other error.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* The used part of cuda.h, which a machine without the toolkit does not have. */
typedef int CUresult;
typedef int CUdevice;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUmemGenericAllocationHandle;
typedef struct { int type, id; } CUmemLocation;
typedef struct { CUmemLocation location; int flags; } CUmemAccessDesc;
enum { CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR = 1, CU_MEM_LOCATION_TYPE_DEVICE = 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE = 3 };

/* The packet on the socket. */
enum { FILES_MAX = 64 };
struct part { uint64_t chunk_bytes, offset, bytes; };
struct packet { uint64_t count, seed; struct part parts[FILES_MAX]; };

static void *library;

static void *find(const char *name) {
    void *function = dlsym(library, name);
    if (!function) {
        fprintf(stderr, "plain: the library has no %s\n", name);
        exit(2);
    }
    return function;
}

static void check(CUresult result, const char *call) {
    if (result) {
        fprintf(stderr, "plain: %s: %d\n", call, result);
        exit(2);
    }
}

/* Calls a function of the library by its name. */
#define CALL(name, types, ...) check(((CUresult(*) types)find(name))(__VA_ARGS__), name)

static void receive(struct packet *packet, int files[FILES_MAX]) {
    char space[CMSG_SPACE(sizeof(int) * FILES_MAX)];
    struct iovec data = {packet, sizeof *packet};
    struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = space, .msg_controllen = sizeof space};
    ssize_t got = recvmsg(0, &message, MSG_CMSG_CLOEXEC);
    struct cmsghdr *control = CMSG_FIRSTHDR(&message);
    uint64_t count = packet->count;
    if (got != (ssize_t)sizeof *packet || !control || control->cmsg_type != SCM_RIGHTS || count == 0 ||
        count > FILES_MAX || control->cmsg_len != CMSG_LEN(sizeof(int) * count)) {
        fprintf(stderr, "plain: no files came\n");
        exit(2);
    }
    memcpy(files, CMSG_DATA(control), sizeof(int) * count);
}

int main(int argc, char **argv) {
    static struct packet packet;
    int files[FILES_MAX];
    if (argc != 3 || !(library = dlopen(argv[1], RTLD_NOW))) {
        fprintf(stderr, "plain: %s\n", argc == 3 ? dlerror() : "LIBRARY DEVICE");
        return 2;
    }
    receive(&packet, files);

    CUdevice device;
    CUcontext context;
    CUstream stream;
    CALL("cuInit", (unsigned), 0);
    CALL("cuDeviceGet", (CUdevice *, int), &device, atoi(argv[2]));
    CALL("cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice), &context, device);
    CALL("cuCtxSetCurrent", (CUcontext), context);

    uint64_t all = 0, bytes = 0;
    for (uint64_t i = 0; i < packet.count; i++) {
        all += packet.parts[i].chunk_bytes;
        bytes += packet.parts[i].bytes;
    }
    CUdeviceptr at, next;
    CALL("cuMemAddressReserve", (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long), &at, all, 0, 0, 0);
    next = at;
    for (uint64_t i = 0; i < packet.count; i++) {
        CUmemGenericAllocationHandle handle;
        size_t chunk = packet.parts[i].chunk_bytes;
        CALL("cuMemImportFromShareableHandle", (CUmemGenericAllocationHandle *, void *, int), &handle,
             (void *)(uintptr_t)files[i], CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
        close(files[i]);
        CALL("cuMemMap", (CUdeviceptr, size_t, size_t, CUmemGenericAllocationHandle, unsigned long long), next, chunk, 0,
             handle, 0);
        CALL("cuMemRelease", (CUmemGenericAllocationHandle), handle);
        next += chunk;
    }
    CUmemAccessDesc access = {{CU_MEM_LOCATION_TYPE_DEVICE, device}, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CALL("cuMemSetAccess", (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t), at, all, &access, 1);

    uint32_t *host = malloc(bytes);
    if (!host) {
        return 2;
    }
    CALL("cuStreamCreate", (CUstream *, unsigned), &stream, 1);
    CALL("cuMemcpyDtoHAsync_v2", (void *, CUdeviceptr, size_t, CUstream), host, at + packet.parts[0].offset, bytes, stream);
    CALL("cuStreamSynchronize", (CUstream), stream);
    for (uint64_t i = 0; i < bytes / 4; i++) {
        uint32_t wanted = (uint32_t)i * 2654435761u ^ (uint32_t)packet.seed;
        if (host[i] != wanted) {
            printf("wrong at %llu: %u, and not %u\n", (unsigned long long)i, host[i], wanted);
            return 3;
        }
    }
    printf("right: %llu B in %llu files\n", (unsigned long long)bytes, (unsigned long long)packet.count);

    CALL("cuMemUnmap", (CUdeviceptr, size_t), at, all);
    CALL("cuMemAddressFree", (CUdeviceptr, size_t), at, all);
    CALL("cuStreamDestroy_v2", (CUstream), stream);
    CALL("cuDevicePrimaryCtxRelease_v2", (CUdevice), device);
    return 0;
}
