/* NVML, as far as a program under a limit of memory asks it: two devices with 80 GiB, of which 79 GiB are free. */
#include <stdio.h>
#include <stdint.h>

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
