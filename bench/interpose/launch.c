/* Host time of a launch with 8 addresses among 10 000 live allocations, and of a pair of allocation and free. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
typedef int R;
R cuInit(unsigned); R cuStreamCreate(void **, unsigned); R cuStreamSynchronize(void *);
R cuMemAllocAsync(unsigned long long *, unsigned long, void *); R cuMemFreeAsync(unsigned long long, void *);
R cuLaunchKernel(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **);

/* A round is shorter than what another program gets of the processor at once. */
enum { LIVE = 10000, ROUNDS = 250, LAUNCHES = 4000 };
static unsigned long long at[LIVE];

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e9 + t.tv_nsec;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(void) {
    void *s;
    cuInit(0);
    cuStreamCreate(&s, 1);
    for (int i = 0; i < LIVE; i++)
        cuMemAllocAsync(&at[i], 4096, s);
    for (int hot = LIVE; hot >= 64; hot -= LIVE - 64)
    for (int addresses = 0; addresses <= 8; addresses += 4) {
        double taken[ROUNDS];
        unsigned x = 1;
        for (int round = 0; round < ROUNDS; round++) {
            double start = now();
            for (int i = 0; i < LAUNCHES; i++) {
                unsigned long long a[8] = {1, 2, 3, 4, 5, 6, 7, 8};
                void *p[8];
                for (int k = 0; k < 8; k++) {
                    x = x * 1664525 + 1013904223;
                    if (k < addresses)
                        a[k] = at[(x >> 8) % hot] + 64;
                    p[k] = &a[k];
                }
                cuLaunchKernel((void *)1, 1, 1, 1, 1, 1, 1, 0, s, p, 0);
            }
            taken[round] = (now() - start) / LAUNCHES;
        }
        qsort(taken, ROUNDS, sizeof *taken, by_size);
        fprintf(stderr, "launch, 8 arguments, %d addresses among %d of %d live: %.0f ns, median %.0f\n", addresses, hot,
                LIVE, taken[0], taken[ROUNDS / 2]);
    }
    double pair[ROUNDS];
    for (int round = 0; round < ROUNDS; round++) {
        double start = now();
        for (int i = 0; i < LAUNCHES; i++) {
            unsigned long long one;
            cuMemAllocAsync(&one, 4096, s);
            cuMemFreeAsync(one, s);
        }
        pair[round] = (now() - start) / LAUNCHES;
    }
    qsort(pair, ROUNDS, sizeof *pair, by_size);
    fprintf(stderr, "allocation and free: %.0f ns, median %.0f\n", pair[0], pair[ROUNDS / 2]);
    cuStreamSynchronize(s);
    return 0;
}
