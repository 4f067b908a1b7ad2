// The host time of an allocation and its free through the shared library, on a host device or the environment's device
// (`example.h`): the median of rounds. With `rows` it prints tab-separated lines of workload, peer, value and unit.
//
//   cc -O2 -I include examples/bench_pair.c -L ../../target/release -lmillpond -o /tmp/bench_pair
//   LD_LIBRARY_PATH=../../target/release /tmp/bench_pair
#include "example.h"
#include <time.h>

enum { ROUNDS = 11, PAIRS = 1000000 };

static double now(void) {
    struct timespec time;
    timespec_get(&time, TIME_UTC);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

static int by_value(const void *left, const void *right) {
    double difference = *(const double *)left - *(const double *)right;
    return (difference > 0) - (difference < 0);
}

static void report(const char *what, double *times, int rows) {
    qsort(times, ROUNDS, sizeof *times, by_value);
    if (rows) {
        printf("%s\tmillpond\t%.4f\tns\n", what, times[ROUNDS / 2]);
    } else {
        printf("%-48s %6.1f ns a pair (fastest round %.1f)\n", what, times[ROUNDS / 2], times[0]);
    }
}

int main(int count, char **words) {
    int rows = count > 1 && strcmp(words[1], "rows") == 0;
    millpond_device_t device;
    millpond_stream_t stream;
    double times[ROUNDS];
    open_device(&device);
    MUST(millpond_stream_create(&stream, device));
    size_t sizes[] = {512, 1 << 16, 1 << 20, 1 << 28};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char what[64];
        for (int round = 0; round < ROUNDS; round++) {
            double begin = now();
            for (int pair = 0; pair < PAIRS; pair++) {
                void *memory;
                MUST(millpond_malloc_async(&memory, sizes[i], stream));
                MUST(millpond_free_async(memory, stream));
            }
            times[round] = (now() - begin) / PAIRS;
        }
        snprintf(what, sizeof what, "C: malloc_async + free_async, %zu B", sizes[i]);
        report(what, times, rows);
    }
    MUST(millpond_torch_use_host(on_host()));
    for (int round = 0; round < ROUNDS; round++) {
        double begin = now();
        for (int pair = 0; pair < PAIRS; pair++) {
            void *memory = millpond_torch_alloc(16384, 0, NULL);
            millpond_torch_free(memory, 16384, 0, NULL);
        }
        times[round] = (now() - begin) / PAIRS;
    }
    report("C: torch_alloc + torch_free, 16384 B", times, rows);
    MUST(millpond_stream_destroy(stream));
    MUST(millpond_device_destroy(device));
    return 0;
}
