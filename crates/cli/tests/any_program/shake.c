/* Programs whose streams race where one of them is late, and the same ones with the missing edge ("right"). */
#define _GNU_SOURCE
#include "helpers.h"
#include <unistd.h>

#define STEPS 6
static int is_right, is_quiet;

/* Its two arguments are addresses of device memory. */
void consume_kernel(void **params) {
    uint64_t *to = *(uint64_t **)params[0], *from = *(uint64_t **)params[1];
    *to = *from;
}
size_t consume_kernel_params[] = {8, 8, 0};

static void consume(CUfunction function, CUdeviceptr to, CUdeviceptr from, CUstream stream) {
    void *params[] = {&to, &from};
    MUST(cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream, params, NULL)); /* the kernel that reads */
}

static CUfunction consumer(void) {
    CUmodule module;
    CUfunction function;
    MUST(cuModuleLoadData(&module, ""));
    MUST(cuModuleGetFunction(&function, module, "consume_kernel"));
    return function;
}

/* Judges what came out: by the status, or by the output if that is asked for. */
static int judged(const uint64_t *values, int count) {
    int wrong = 0;
    uint64_t sum = 0;
    for (int i = 0; i < count; i++) {
        wrong += values[i] != (uint64_t)i + 1;
        sum += values[i];
    }
    if (is_quiet) {
        printf("the sum is %llu\n", (unsigned long long)sum);
        return 0;
    }
    if (wrong)
        fprintf(stderr, "%d of %d values are wrong\n", wrong, count);
    return wrong ? 4 : 0;
}

/* The next data are copied into a buffer that the kernel of two steps ago may still read. */
static int prefetch(void) {
    CUdeviceptr buffers[2], out;
    CUevent was_read[2];
    uint64_t *staged, values[STEPS] = {0};
    CUfunction function = consumer();
    MUST(cuMemHostAlloc((void **)&staged, BYTES, 0));
    MUST(cuMemAlloc(&out, BYTES));
    for (int i = 0; i < 2; i++) {
        MUST(cuMemAlloc(&buffers[i], BYTES));
        MUST(cuEventCreate(&was_read[i], 2));
    }
    for (int step = 0; step < STEPS; step++) {
        CUdeviceptr buffer = buffers[step % 2];
        staged[step] = step + 1;
        if (is_right && step >= 2)
            MUST(cuStreamWaitEvent(s, was_read[step % 2], 0));
        MUST(cuMemcpyAsync(buffer, (CUdeviceptr)&staged[step], 8, s)); /* the copy that comes too early */
        hand_over(s, t);
        consume(function, out + 8 * step, buffer, t);
        MUST(cuEventRecord(was_read[step % 2], t));
        /* The host is slow, so that the device has always done all of it. */
        usleep(4000);
    }
    MUST(cuCtxSynchronize());
    MUST(cuMemcpyDtoH(values, out, sizeof values));
    return judged(values, STEPS);
}

/* The host reads what a copy brings, without waiting for the copy. */
static int impatient(void) {
    CUdeviceptr from;
    uint64_t *to;
    MUST(cuMemHostAlloc((void **)&to, BYTES, 0));
    MUST(cuMemAlloc(&from, BYTES));
    MUST(cuMemsetD8Async(from, 1, BYTES, s));
    MUST(cuMemcpyAsync((CUdeviceptr)to, from, 1, s)); /* the copy that nobody waits for */
    usleep(2000);
    if (is_right)
        MUST(cuStreamSynchronize(s));
    int wrong = judged(to, 1);
    MUST(cuCtxSynchronize());
    return wrong;
}

/* A graph with one node; its launches race with copies on another stream. */
static int captured(void) {
    CUdeviceptr from, out;
    CUgraph graph;
    CUgraphExec exec;
    size_t nodes = 0;
    uint64_t *staged, value = 0;
    CUfunction function = consumer();
    MUST(cuMemHostAlloc((void **)&staged, BYTES, 0));
    MUST(cuMemAlloc(&out, BYTES));
    MUST(cuMemAlloc(&from, BYTES));
    staged[0] = 1;
    MUST(cuMemcpyAsync(from, (CUdeviceptr)staged, 8, t));
    MUST(cuStreamBeginCapture(t, 0));
    consume(function, out, from, t);
    MUST(cuStreamEndCapture(t, &graph));
    MUST(cuGraphGetNodes(graph, NULL, &nodes));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, t));
    MUST(cuCtxSynchronize());
    MUST(cuMemcpyDtoH(&value, out, 8));
    printf("%zu nodes\n", nodes);
    return judged(&value, 1);
}

/* Many operations, so that not all can be late. */
static int many(void) {
    CUdeviceptr at;
    MUST(cuMemAlloc(&at, BYTES));
    for (int i = 0; i < 500; i++)
        MUST(cuMemsetD8Async(at, i, BYTES, i % 2 ? s : t));
    MUST(cuCtxSynchronize());
    return 0;
}

/* What it writes is never the same. */
static int different(void) {
    many();
    printf("%d\n", (int)getpid());
    return 0;
}

/* Wrong whatever is late. */
static int broken(void) {
    many();
    fprintf(stderr, "broken\n");
    return 3;
}

/* Writes its result to a file that is named after the name of the program. */
static const char *file_name;
static int writes(void) {
    FILE *file = fopen(file_name, "w");
    is_quiet = 0;
    int wrong = prefetch();
    fprintf(file, "%s\n", wrong ? "wrong" : "right");
    fclose(file);
    return 0;
}

/* Is stopped by a signal if one of its operations is late. */
static int aborts(void) {
    if (prefetch())
        abort();
    return 0;
}

static int without_work(void) { return 0; }

int main(int count, char **words) {
    const struct {
        const char *name;
        int (*run)(void);
    } all[] = {{"prefetch", prefetch},   {"impatient", impatient}, {"captured", captured},
               {"many", many},           {"different", different}, {"broken", broken},
               {"writes", writes},       {"aborts", aborts},       {"without-work", without_work}};
    for (int i = 2; i < count; i++) {
        is_right |= strcmp(words[i], "right") == 0;
        is_quiet |= strcmp(words[i], "quiet") == 0;
        file_name = words[i];
    }
    for (size_t i = 0; count > 1 && i < sizeof all / sizeof *all; i++) {
        if (strcmp(words[1], all[i].name) == 0) {
            begin();
            return all[i].run();
        }
    }
    return 7;
}
