/* The part of the driver API that the test programs use. */
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
typedef unsigned long long CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUgraph_st *CUgraph;
typedef struct CUnode_st *CUgraphNode;
typedef struct CUexec_st *CUgraphExec;

typedef struct {
    CUfunction func;
    unsigned grid[3], block[3], shared;
    void **params;
    void **extra;
    void *kernel, *context;
} CUDA_KERNEL_NODE_PARAMS;

typedef struct {
    uint64_t pool[11];
    const void *access;
    size_t access_count, bytesize;
    CUdeviceptr dptr;
} CUDA_MEM_ALLOC_NODE_PARAMS;

typedef struct {
    unsigned grid[3], block[3], shared;
    CUstream stream;
    void *attributes;
    unsigned count;
} CUlaunchConfig;

typedef struct CUpool_st *CUmemoryPool;

typedef struct {
    char bytes[64];
} CUipcMemHandle;

typedef struct {
    int type, id;
} CUmemLocation;

typedef struct {
    int allocType, handleTypes;
    CUmemLocation location;
    void *security;
    size_t maxSize;
    unsigned short usage;
    unsigned char reserved[54];
} CUmemPoolProps;

typedef struct {
    CUmemLocation location;
    int flags;
} CUmemAccessDesc;

typedef struct {
    int type, requestedHandleTypes;
    CUmemLocation location;
    void *win32HandleMetaData;
    unsigned char allocFlags[8];
} CUmemAllocationProp;

typedef struct {
    size_t Width, Height;
    unsigned Format, NumChannels;
} CUDA_ARRAY_DESCRIPTOR;

typedef struct {
    size_t Width, Height, Depth;
    unsigned Format, NumChannels, Flags;
} CUDA_ARRAY3D_DESCRIPTOR;

#define EACH(X)                                                                                                        \
    X(cuInit, cuInit, (unsigned))                                                                                      \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, (CUcontext *, int))                                          \
    X(cuCtxSetCurrent, cuCtxSetCurrent, (CUcontext))                                                                   \
    X(cuCtxSynchronize, cuCtxSynchronize, (void))                                                                      \
    X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, (int))                                                      \
    X(cuEventDestroy, cuEventDestroy_v2, (CUevent))                                                                    \
    X(cuEventQuery, cuEventQuery, (CUevent))                                                                           \
    X(cuEventSynchronize, cuEventSynchronize, (CUevent))                                                               \
    X(cuStreamQuery, cuStreamQuery, (CUstream))                                                                        \
    X(cuMemAddressFree, cuMemAddressFree, (CUdeviceptr, size_t))                                                       \
    X(cuModuleUnload, cuModuleUnload, (CUmodule))                                                                      \
    X(cuGraphExecDestroy, cuGraphExecDestroy, (CUgraphExec))                                                           \
    X(cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph,                                                        \
      (CUstream, CUgraph, const CUgraphNode *, const void *, size_t, int))                                             \
    X(cuCtxRecordEvent, cuCtxRecordEvent, (CUcontext, CUevent))                                                        \
    X(cuCtxGetCurrent, cuCtxGetCurrent, (CUcontext *))                                                                 \
    X(cuStreamCreate, cuStreamCreate, (CUstream *, unsigned))                                                          \
    X(cuStreamDestroy, cuStreamDestroy_v2, (CUstream))                                                                 \
    X(cuStreamSynchronize, cuStreamSynchronize, (CUstream))                                                            \
    X(cuStreamWaitEvent, cuStreamWaitEvent, (CUstream, CUevent, unsigned))                                             \
    X(cuEventCreate, cuEventCreate, (CUevent *, unsigned))                                                             \
    X(cuEventRecord, cuEventRecord, (CUevent, CUstream))                                                               \
    X(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, (CUcontext, unsigned))                                             \
    X(cuCtxDisablePeerAccess, cuCtxDisablePeerAccess, (CUcontext))                                                     \
    X(cuCtxCreate, cuCtxCreate_v2, (CUcontext *, unsigned, int))                                                       \
    X(cuCtxDestroy, cuCtxDestroy_v2, (CUcontext))                                                                      \
    X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, (CUdeviceptr *, size_t, CUmemoryPool, CUstream))               \
    X(cuMemPoolCreate, cuMemPoolCreate, (CUmemoryPool *, const CUmemPoolProps *))                                      \
    X(cuMemPoolDestroy, cuMemPoolDestroy, (CUmemoryPool))                                                              \
    X(cuMemPoolTrimTo, cuMemPoolTrimTo, (CUmemoryPool, size_t))                                                        \
    X(cuMemPoolSetAttribute, cuMemPoolSetAttribute, (CUmemoryPool, int, void *))                                       \
    X(cuMemPoolGetAttribute, cuMemPoolGetAttribute, (CUmemoryPool, int, void *))                                       \
    X(cuMemPoolSetAccess, cuMemPoolSetAccess, (CUmemoryPool, const CUmemAccessDesc *, size_t))                         \
    X(cuMemPoolGetAccess, cuMemPoolGetAccess, (int *, CUmemoryPool, CUmemLocation *))                                  \
    X(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, (CUmemoryPool *, int))                                     \
    X(cuDeviceGetMemPool, cuDeviceGetMemPool, (CUmemoryPool *, int))                                                   \
    X(cuDeviceSetMemPool, cuDeviceSetMemPool, (int, CUmemoryPool))                                                     \
    X(cuPointerGetAttribute, cuPointerGetAttribute, (void *, int, CUdeviceptr))                                        \
    X(cuPointerGetAttributes, cuPointerGetAttributes, (unsigned, int *, void **, CUdeviceptr))                         \
    X(cuMemGetAddressRange, cuMemGetAddressRange_v2, (CUdeviceptr *, size_t *, CUdeviceptr))                           \
    X(cuMemGetInfo, cuMemGetInfo_v2, (size_t *, size_t *))                                                             \
    X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, (unsigned long long *, void *))                        \
    X(cuIpcGetMemHandle, cuIpcGetMemHandle, (void *, CUdeviceptr))                                                     \
    X(cuIpcGetEventHandle, cuIpcGetEventHandle, (CUipcMemHandle *, CUevent))                                           \
    X(cuIpcOpenEventHandle, cuIpcOpenEventHandle, (CUevent *, CUipcMemHandle))                                         \
    X(cuIpcOpenMemHandle, cuIpcOpenMemHandle_v2, (CUdeviceptr *, CUipcMemHandle, unsigned))                            \
    X(cuIpcCloseMemHandle, cuIpcCloseMemHandle, (CUdeviceptr))                                                         \
    X(cuLaunchHostFunc, cuLaunchHostFunc, (CUstream, void (*)(void *), void *))                                        \
    X(cuMemAlloc, cuMemAlloc_v2, (CUdeviceptr *, size_t))                                                              \
    X(cuMemAddressReserve, cuMemAddressReserve, (CUdeviceptr *, size_t, size_t, CUdeviceptr, unsigned long long))      \
    X(cuMemCreate, cuMemCreate, (unsigned long long *, size_t, const CUmemAllocationProp *, unsigned long long))       \
    X(cuMemRelease, cuMemRelease, (unsigned long long))                                                                \
    X(cuMemMap, cuMemMap, (CUdeviceptr, size_t, size_t, unsigned long long, unsigned long long))                       \
    X(cuMemUnmap, cuMemUnmap, (CUdeviceptr, size_t))                                                                   \
    X(cuMemSetAccess, cuMemSetAccess, (CUdeviceptr, size_t, const CUmemAccessDesc *, size_t))                          \
    X(cuMemFree, cuMemFree_v2, (CUdeviceptr))                                                                          \
    X(cuMemAllocManaged, cuMemAllocManaged, (CUdeviceptr *, size_t, unsigned))                                         \
    X(cuMemAllocPitch, cuMemAllocPitch_v2, (CUdeviceptr *, size_t *, size_t, size_t, unsigned))                        \
    X(cuArrayCreate, cuArrayCreate_v2, (uintptr_t *, const CUDA_ARRAY_DESCRIPTOR *))                                   \
    X(cuArrayDestroy, cuArrayDestroy, (uintptr_t))                                                                     \
    X(cuArray3DCreate, cuArray3DCreate_v2, (uintptr_t *, const CUDA_ARRAY3D_DESCRIPTOR *))                             \
    X(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy, (uintptr_t))                                                   \
    X(cuDeviceTotalMem, cuDeviceTotalMem_v2, (size_t *, int))                                                          \
    X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, (int))                                                  \
    X(cuMipmappedArrayCreate, cuMipmappedArrayCreate,                                                                  \
      (uintptr_t *, const CUDA_ARRAY3D_DESCRIPTOR *, unsigned))                                                        \
    X(cuMemHostAlloc, cuMemHostAlloc, (void **, size_t, unsigned))                                                     \
    X(cuMemFreeHost, cuMemFreeHost, (void *))                                                                          \
    X(cuMemAllocAsync, cuMemAllocAsync, (CUdeviceptr *, size_t, CUstream))                                             \
    X(cuMemFreeAsync, cuMemFreeAsync, (CUdeviceptr, CUstream))                                                         \
    X(cuMemAllocAsync_ptsz, cuMemAllocAsync_ptsz, (CUdeviceptr *, size_t, CUstream))                                   \
    X(cuMemFreeAsync_ptsz, cuMemFreeAsync_ptsz, (CUdeviceptr, CUstream))                                               \
    X(cuMemsetD8Async_ptsz, cuMemsetD8Async_ptsz, (CUdeviceptr, unsigned char, size_t, CUstream))                      \
    X(cuMemsetD8Async, cuMemsetD8Async, (CUdeviceptr, unsigned char, size_t, CUstream))                                \
    X(cuMemcpyAsync, cuMemcpyAsync, (CUdeviceptr, CUdeviceptr, size_t, CUstream))                                      \
    X(cuMemcpyDtoH, cuMemcpyDtoH_v2, (void *, CUdeviceptr, size_t))                                                    \
    X(cuModuleLoadData, cuModuleLoadData, (CUmodule *, const void *))                                                  \
    X(cuModuleGetFunction, cuModuleGetFunction, (CUfunction *, CUmodule, const char *))                                \
    X(cuLaunchKernel, cuLaunchKernel,                                                                                  \
      (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **))  \
    X(cuStreamBeginCapture, cuStreamBeginCapture_v2, (CUstream, int))                                                  \
    X(cuGraphDestroy, cuGraphDestroy, (CUgraph))                                                                       \
    X(cuStreamEndCapture, cuStreamEndCapture, (CUstream, CUgraph *))                                                   \
    X(cuThreadExchangeStreamCaptureMode, cuThreadExchangeStreamCaptureMode, (int *))                                   \
    X(cuGraphCreate, cuGraphCreate, (CUgraph *, unsigned))                                                             \
    X(cuGraphAddKernelNode, cuGraphAddKernelNode_v2,                                                                   \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, const CUDA_KERNEL_NODE_PARAMS *))                          \
    X(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode,                                                                  \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUDA_MEM_ALLOC_NODE_PARAMS *))                             \
    X(cuGraphAddMemFreeNode, cuGraphAddMemFreeNode,                                                                    \
      (CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUdeviceptr))                                              \
    X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags, (CUgraphExec *, CUgraph, unsigned long long))          \
    X(cuLaunchKernelEx, cuLaunchKernelEx, (const CUlaunchConfig *, CUfunction, void **, void **))                      \
    X(cuGraphClone, cuGraphClone, (CUgraph *, CUgraph))                                                                \
    X(cuGraphGetNodes, cuGraphGetNodes, (CUgraph, CUgraphNode *, size_t *))                                            \
    X(cuGraphDestroyNode, cuGraphDestroyNode, (CUgraphNode))                                                           \
    X(cuGraphKernelNodeSetParams, cuGraphKernelNodeSetParams_v2, (CUgraphNode, const CUDA_KERNEL_NODE_PARAMS *))       \
    X(cuGraphExecUpdate, cuGraphExecUpdate_v2, (CUgraphExec, CUgraph, void *))                                         \
    X(cuGraphLaunch, cuGraphLaunch, (CUgraphExec, CUstream))

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        CUresult code = (call);                                                                                        \
        if (code != 0) {                                                                                               \
            fprintf(stderr, "%s: %d\n", #call, code);                                                                  \
            exit(9);                                                                                                   \
        }                                                                                                              \
    } while (0)

#ifdef BY_LOOKUP
/* As in a program that opens the library itself: four names by dlsym, the rest by cuGetProcAddress. */
#include <dlfcn.h>
#define DECLARE(name, symbol, args) static CUresult(*name) args;
EACH(DECLARE)
typedef CUresult (*Lookup)(const char *, void **, int, unsigned long long, int *);
static void load(void) {
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        exit(8);
    }
    Lookup lookup = (Lookup)dlsym(library, "cuGetProcAddress_v2");
#define FIND(name, symbol, args) MUST(lookup(#name, (void **)&name, 13000, 0, NULL));
    EACH(FIND)
}
#else
#define DECLARE(name, symbol, args) CUresult symbol args;
EACH(DECLARE)
#define cuStreamDestroy cuStreamDestroy_v2
#define cuDevicePrimaryCtxReset cuDevicePrimaryCtxReset_v2
#define cuEventDestroy cuEventDestroy_v2
#define cuMemAlloc cuMemAlloc_v2
#define cuCtxCreate cuCtxCreate_v2
#define cuCtxDestroy cuCtxDestroy_v2
#define cuMemGetAddressRange cuMemGetAddressRange_v2
#define cuMemGetInfo cuMemGetInfo_v2
#define cuMemAllocPitch cuMemAllocPitch_v2
#define cuArrayCreate cuArrayCreate_v2
#define cuArray3DCreate cuArray3DCreate_v2
#define cuDeviceTotalMem cuDeviceTotalMem_v2
#define cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2
#define cuMemFree cuMemFree_v2
#define cuIpcOpenMemHandle cuIpcOpenMemHandle_v2
#define cuMemcpyDtoH cuMemcpyDtoH_v2
#define cuStreamBeginCapture cuStreamBeginCapture_v2
#define cuGraphAddKernelNode cuGraphAddKernelNode_v2
#define cuGraphKernelNodeSetParams cuGraphKernelNodeSetParams_v2
#define cuGraphExecUpdate cuGraphExecUpdate_v2
static void load(void) {}
#ifdef BY_RUNTIME
/* As in a program of the runtime: its calls pass through another library. */
CUresult cudaLaunch(CUfunction, CUstream, void **);
CUresult cudaFree2(CUdeviceptr, CUstream);
#define cuLaunchKernel(function, a, b, c, d, e, f, g, stream, params, extra) cudaLaunch(function, stream, params)
#define cuMemFreeAsync cudaFree2
#endif
#endif
