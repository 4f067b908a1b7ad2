/* NVML, as far as a program under a limit of memory asks it: two devices with 80 GiB, of which 79 GiB are free. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define GIB (1ull << 30)

int nvmlInit_v2(void) { return 0; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(uintptr_t)(index + 1);
    return index < 2 ? 0 : 2;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned length) {
    snprintf(text, length, "GPU-00000000-0000-0000-0000-%012x", (unsigned)(uintptr_t)device - 1);
    return 0;
}

int nvmlDeviceGetHandleByUUID(const char *name, void **device) {
    char own[96];
    for (uintptr_t i = 1; i <= 2; i++) {
        nvmlDeviceGetUUID((void *)i, own, sizeof own);
        *device = (void *)i;
        if (strcmp(own, name) == 0)
            return 0;
    }
    return 6;
}

struct process {
    unsigned number;
    unsigned long long used;
    unsigned instances[2];
};

/* The process has a context of FAKENVML_CONTEXT_MIB beside its memory. Without that, no process is known. */
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, struct process *all) {
    const char *context = getenv("FAKENVML_CONTEXT_MIB");
    if (context == NULL) {
        *count = 0;
        return 0;
    }
    void *cuda = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    unsigned long long (*used)(int) = (unsigned long long (*)(int))dlsym(cuda, "fakecuda_used_bytes");
    if (*count < 100) {
        *count = 100;
        return 7;
    }
    *count = 2;
    all[0] = (struct process){getpid() + 1, 7 * GIB, {0, 0}};
    all[1] = (struct process){getpid(), used((int)(uintptr_t)device - 1) + ((unsigned long long)atoi(context) << 20), {0, 0}};
    return 0;
}

int nvmlDeviceGetMemoryInfo(void *device, unsigned long long *memory) {
    if (device == NULL)
        return 2;
    memory[0] = 80 * GIB;
    memory[1] = 79 * GIB;
    memory[2] = 1 * GIB;
    return 0;
}

int nvmlDeviceGetMemoryInfo_v2(void *device, unsigned long long *memory) {
    memory[1] = 80 * GIB;
    memory[2] = GIB / 2;
    memory[3] = 79 * GIB;
    memory[4] = GIB / 2;
    return device == NULL ? 2 : 0;
}
