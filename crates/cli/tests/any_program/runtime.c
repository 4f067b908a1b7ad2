/* A library between a program and the driver, as the CUDA runtime is: two to four frames without frame pointers. */
typedef int CUresult;
CUresult cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);
CUresult cuMemFreeAsync(unsigned long long, void *);

__attribute__((noinline)) static CUresult inner(void *function, void *stream, void **params, volatile char *room, int deeper) {
    char more[200];
    more[room[0] & 7] = 1;
    CUresult code = deeper > 0 ? inner(function, stream, params, room, deeper - 1)
                               : cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, 0);
    return code + (((volatile char *)more)[0] & 0);
}

CUresult cudaLaunch(void *function, void *stream, void **params) {
    static int calls;
    volatile char room[100];
    room[0] = 0;
    CUresult code = inner(function, stream, params, room, calls++ % 3);
    return code + room[0];
}

CUresult cudaFree2(unsigned long long at, void *stream) {
    volatile int kept = cuMemFreeAsync(at, stream);
    return kept;
}
