/* A libcuda.so.1 that does nothing, to measure what stands in front of it. Kernels have 8 parameters of 8 bytes. */
#include <stddef.h>
typedef int R;
static unsigned long long next = 0x7f0000000000ull;
R cuInit(unsigned f) { return 0; }
R cuCtxGetDevice(int *d) { *d = 0; return 0; }
R cuStreamCreate(void **s, unsigned f) { next += 512; *s = (void *)next; return 0; }
R cuMemAllocAsync(unsigned long long *at, size_t n, void *s) { *at = next += 8192; return 0; }
R cuMemFreeAsync(unsigned long long at, void *s) { return 0; }
R cuMemsetD8Async(unsigned long long at, unsigned char v, size_t n, void *s) { return 0; }
R cuStreamSynchronize(void *s) { return 0; }
R cuFuncGetParamInfo(void *f, size_t i, size_t *o, size_t *n) { if (i >= 8) return 1; *o = 8 * i; *n = 8; return 0; }
R cuLaunchKernel(void *f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned h, void *s,
                 void **p, void **x) { return 0; }
