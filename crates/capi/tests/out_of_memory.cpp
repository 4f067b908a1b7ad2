// If no memory is left, PyTorch gets a C++ exception with the report, and the allocator still works.
#include <cstdio>
#include <cstring>
#include <millpond.h>
#include <stdexcept>

int main() {
    if (millpond_torch_use_host(1) != MILLPOND_SUCCESS) return 1;
    try {
        millpond_torch_alloc(ptrdiff_t(1) << 50, 0, nullptr);
        return 2;
    } catch (const std::exception &error) {
        std::printf("caught: %s\n", error.what());
        if (std::strncmp(error.what(), "CUDA out of memory. ", 20)) return 3;
    }
    void *memory = millpond_torch_alloc(4096, 0, nullptr);
    if (!memory) return 4;
    millpond_torch_free(memory, 4096, 0, nullptr);
    return 0;
}
