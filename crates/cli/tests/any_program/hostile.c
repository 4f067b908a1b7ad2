/* Programs that do unexpected things, one for each name. Each is right except for what its name says. */
#define _GNU_SOURCE
#include "helpers.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* The selected way, if there are several ways to do the same. */
static int way;

static void wrong(void) {
    CUdeviceptr a = alloc(s);
    MUST(cuMemFreeAsync(a, t)); /* hostile: unordered */
    MUST(cuCtxSynchronize());
}

/* Nobody may write to the file descriptor that was standard error. */
static void no_stderr(void) {
    close(2);
    wrong();
}

/* Files may have 16 KiB: a trace reaches that limit. */
static void small_files(void) {
    CUdeviceptr a = alloc(s);
    launch(a, s);
    MUST(cuStreamSynchronize(s));
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){16 << 10, 16 << 10});
    for (int i = 0; i < 20000; i++)
        MUST(cuEventRecord(e, s));
    MUST(cuMemFreeAsync(a, s));
    MUST(cuStreamSynchronize(s));
}

/* As daemons do: all files are closed, and the next ones get their numbers. */
static void closes_all(void) {
    int own[16];
    CUdeviceptr a = alloc(s);
    launch(a, s);
    MUST(cuStreamSynchronize(s));
    for (int i = 3; i < 256; i++)
        close(i);
    for (int i = 0; i < 16; i++)
        own[i] = memfd_create("own", 0);
    launch(a, s);
    MUST(cuMemFreeAsync(a, s));
    MUST(cuStreamSynchronize(s));
    for (int i = 0; i < 16; i++)
        if (lseek(own[i], 0, SEEK_END) != 0)
            exit(12);
}

/* A thread uses its own default stream. */
static void *on_its_default_stream(void *unused) {
    CUcontext context;
    CUdeviceptr a;
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuMemAllocAsync_ptsz(&a, BYTES, 0));
    MUST(cuMemsetD8Async_ptsz(a, 1, BYTES, 0));
    MUST(cuMemFreeAsync_ptsz(a, 0));
    return unused;
}

static void thread_that_ends(void *(*what)(void *)) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, what, NULL) != 0)
        exit(10);
    pthread_join(thread, NULL);
}

static void many_threads(void) {
    for (int i = 0; i < 500; i++)
        thread_that_ends(on_its_default_stream);
    MUST(cuCtxSynchronize());
}

/* Handles that do not exist, are destroyed twice, or are of other kinds. */
static void wrong_handles(void) {
    CUstream gone;
    CUdeviceptr a = alloc(s);
    MUST(cuStreamCreate(&gone, 1));
    MUST(cuStreamDestroy(gone));
    int refused = cuStreamDestroy(gone) != 0;
    refused += cuStreamDestroy(NULL) != 0;
    refused += cuMemFreeAsync(a, gone) != 0;
    refused += cuEventRecord(e, gone) != 0;
    refused += cuStreamWaitEvent(gone, e, 0) != 0;
    refused += cuStreamSynchronize(gone) != 0;
    refused += cuGraphLaunch(NULL, s) != 0;
    refused += cuGraphDestroy(NULL) != 0;
    refused += cuMemUnmap(0, 4096) != 0;
    refused += cuMemUnmap(a + 1, ~0ull) != 0;
    refused += cuMemSetAccess(a, ~0ull, NULL, 0) != 0;
    launch(a, s);
    MUST(cuMemFreeAsync(a, s));
    printf("refused: %d\n", refused);
}

/* Another program replaces this one in the middle of its work. The first one that is tried does not exist. */
static void replaced(void) {
    char *const words[] = {"echo", "replaced", NULL};
    CUdeviceptr a = alloc(s);
    launch(a, s);
    fflush(stdout);
    execl("/no/such/program", "echo", "replaced", NULL);
    launch(a, s);
    MUST(cuMemFreeAsync(a, s));
    switch (way) {
    case 0:
        execl("/bin/echo", "echo", "a", "b", "c", "d", "e", "f", "g", "replaced", NULL);
    case 1:
        execle("/bin/echo", "echo", "replaced", NULL, environ);
    case 2:
        execlp("echo", "echo", "a", "b", "c", "d", "e", "f", "g", "replaced", NULL);
    case 3:
        execv("/bin/echo", words);
    case 4:
        execve("/bin/echo", words, environ);
    case 5:
        execvp("echo", words);
    case 6:
        execvpe("echo", words, environ);
    case 7:
        fexecve(open("/bin/echo", O_RDONLY | O_CLOEXEC), words, environ);
    case 8:
        execveat(AT_FDCWD, "/bin/echo", words, environ, 0);
    }
    exit(11);
}

/* Other processes are replaced by other programs, by each means, while this one works on. */
static void spawning(void) {
    CUdeviceptr a = alloc(s);
    launch(a, s);
    fflush(stdout);
    if (vfork() == 0) {
        execl("/bin/true", "true", NULL);
        _exit(12);
    }
    if (fork() == 0) {
        execl("/bin/true", "true", NULL);
        _exit(12);
    }
    if (system("exec true") != 0)
        exit(13);
    launch(a, s);
    MUST(cuMemFreeAsync(a, s));
    int status;
    while (wait(&status) > 0)
        if (status != 0)
            exit(14);
}

/* As many arguments as a kernel may have, and one structure of the same size. */
static void many_arguments(void) {
    CUfunction wide;
    CUmodule module;
    CUdeviceptr words[512], a = alloc(s), gone = alloc(s);
    void *params[512];
    MUST(cuMemFreeAsync(gone, s));
    for (int i = 0; i < 512; i++) {
        words[i] = i % 2 ? a + i : (CUdeviceptr)-1 - i;
        params[i] = &words[i];
    }
    MUST(cuModuleLoadData(&module, ""));
    MUST(cuModuleGetFunction(&wide, module, "wide_kernel"));
    MUST(cuLaunchKernel(wide, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
    MUST(cuMemFreeAsync(a, t)); /* hostile: after the wide one */
}
void wide_kernel(void **params) { (void)params; }
size_t wide_kernel_params[513] = {[0 ... 511] = 8, 0};

/* Arguments passed in every way. Each time another stream frees the memory without waiting. */
static void arguments(void) {
    CUfunction pair;
    CUmodule module;
    MUST(cuModuleLoadData(&module, ""));
    MUST(cuModuleGetFunction(&pair, module, "pair_kernel"));
    char buffer[64];
    size_t bytes = 24;
    CUlaunchConfig config = {{1, 1, 1}, {1, 1, 1}, 0, s, NULL, 0};
    for (int round = 0; round < 4; round++) {
        CUdeviceptr a = alloc(s), last = a + BYTES - 1;
        /* Neither the buffer nor the arguments are aligned. */
        char *start = buffer + 1 + round;
        int number = 7;
        memcpy(start, &number, 4);
        memcpy(start + 8, &number, 4);
        memcpy(start + 16, &last, 8);
        void *extra[] = {(void *)1, start, (void *)2, &bytes, NULL}, *params[] = {start, start + 8};
        switch (round) {
        case 0:
            MUST(cuLaunchKernel(pair, 1, 1, 1, 1, 1, 1, 0, s, NULL, extra));
            break;
        case 1:
            MUST(cuLaunchKernelEx(&config, pair, NULL, extra));
            break;
        case 2:
            MUST(cuLaunchKernelEx(&config, pair, params, NULL));
            break;
        case 3:
            MUST(cuLaunchKernel(pair, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
        }
        MUST(cuMemFreeAsync(a, t)); /* hostile: after arguments of every kind */
        MUST(cuCtxSynchronize());
    }
    if (cuLaunchKernel(pair, 1, 1, 1, 1, 1, 1, 0, s, NULL, NULL) == 0)
        exit(15);
    CUdeviceptr a = alloc(s), past = a + BYTES;
    void *params[] = {&past, &past};
    MUST(cuLaunchKernel(pair, 1, 1, 1, 1, 1, 1, 0, s, params, NULL));
}
void pair_kernel(void **params) { (void)params; }
size_t pair_kernel_params[] = {4, 16, 0};

/* Many threads launch at once, on streams of their own, with memory of their own, which others get after them. */
static void *launching(void *unused) {
    CUcontext context;
    CUstream own;
    MUST(cuDevicePrimaryCtxRetain(&context, 0));
    MUST(cuCtxSetCurrent(context));
    MUST(cuStreamCreate(&own, 1));
    for (int i = 0; i < 50; i++) {
        CUdeviceptr a = alloc(own), b = alloc(own);
        for (int k = 0; k < 5; k++) {
            launch(a, own);
            launch(b, own);
        }
        MUST(cuMemFreeAsync(a, own));
        MUST(cuMemFreeAsync(b, own));
    }
    MUST(cuStreamSynchronize(own));
    return unused;
}

static void at_once(void) {
    pthread_t all[64];
    for (int i = 0; i < 64; i++)
        if (pthread_create(&all[i], NULL, launching, NULL) != 0)
            exit(10);
    for (int i = 0; i < 64; i++)
        pthread_join(all[i], NULL);
}

/* Each request has a thread of its own, which uses its default stream and ends. */
static void *requested(void *unused) {
    on_its_default_stream(unused);
    MUST(cuStreamSynchronize((CUstream)2));
    return unused;
}

static long resident_kib(void) {
    long all = 0, resident = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%ld %ld", &all, &resident) != 2)
        exit(16);
    fclose(file);
    return resident * 4;
}

static void threads_that_end(void) {
    long before = 0;
    for (int i = 0; i < 6000; i++) {
        thread_that_ends(requested);
        if (i == 1000)
            before = resident_kib();
    }
    printf("%ld KiB\n", resident_kib() - before);
}

/* More pools, graphs, instances or threads than there are numbers left; one mistake before that, and one after. */
static void numbers(void) {
    CUgraph kept;
    MUST(cuGraphCreate(&kept, 0));
    launch(alloc(s), t);
    for (int i = 0; i < 8; i++) {
        CUmemPoolProps props = {.allocType = 1, .location = {1, 0}};
        CUmemoryPool pool;
        CUgraph graph;
        CUgraphExec exec;
        if (way == 0) {
            MUST(cuMemPoolCreate(&pool, &props));
            MUST(cuMemPoolDestroy(pool));
        } else if (way == 1) {
            MUST(cuGraphCreate(&graph, 0));
            MUST(cuGraphDestroy(graph));
        } else if (way == 2) {
            MUST(cuGraphInstantiateWithFlags(&exec, kept, 0));
            MUST(cuGraphExecDestroy(exec));
        } else {
            thread_that_ends(on_its_default_stream);
        }
    }
    launch(alloc(s), t);
    MUST(cuCtxSynchronize());
}

/* The memory of another process, by its name. The other process ends when this one closes the pipe. */
static CUipcMemHandle exported;
static int until_closed;

static void exporter(void) {
    int names[2], ends[2];
    if (pipe(names) != 0 || pipe(ends) != 0)
        exit(10);
    until_closed = ends[1];
    if (fork() == 0) {
        CUdeviceptr a;
        char byte;
        close(ends[1]);
        begin();
        MUST(cuMemAlloc(&a, BYTES));
        MUST(cuIpcGetMemHandle(&exported, a));
        exit(write(names[1], &exported, sizeof exported) != sizeof exported || read(ends[0], &byte, 1) != 0);
    }
    close(names[1]);
    if (read(names[0], &exported, sizeof exported) != sizeof exported)
        exit(10);
}

/* Memory that is opened twice exists until it is closed twice. */
static void opened_twice(void) {
    CUdeviceptr a, b;
    MUST(cuIpcOpenMemHandle(&a, exported, 1));
    MUST(cuIpcOpenMemHandle(&b, exported, 1));
    if (a != b)
        exit(12);
    launch(a, s);
    MUST(cuIpcCloseMemHandle(a));
    launch(a, s);
    if (way == 1) {
        MUST(cuIpcCloseMemHandle(b));
        launch(a, s); /* wrong: closed as often as it was opened */
    }
    MUST(cuStreamSynchronize(s));
    if (way == 0)
        MUST(cuIpcCloseMemHandle(b));
    close(until_closed);
    wait(NULL);
}

/* A process that waits for an event of this one, and records one of its own after that. */
static int to_other[2], from_other[2];

static void send_name(int to, const CUipcMemHandle *name) {
    if (write(to, name, sizeof *name) != sizeof *name)
        exit(10);
}

static void receive_name(int from, CUipcMemHandle *name) {
    if (read(from, name, sizeof *name) != sizeof *name)
        exit(10);
}

static void relay(void) {
    CUipcMemHandle name;
    CUevent first, second;
    char byte;
    if (pipe(to_other) != 0 || pipe(from_other) != 0)
        exit(10);
    if (fork() != 0) {
        close(to_other[0]);
        return;
    }
    close(to_other[1]);
    begin();
    receive_name(to_other[0], &name);
    MUST(cuIpcOpenEventHandle(&first, name));
    MUST(cuStreamWaitEvent(s, first, 0));
    MUST(cuEventCreate(&second, 2 | 4));
    MUST(cuEventRecord(second, s));
    MUST(cuIpcGetEventHandle(&name, second));
    send_name(from_other[1], &name);
    exit(read(to_other[0], &byte, 1) != 0);
}

/* Another process makes the order of two streams. */
static void relayed(void) {
    CUipcMemHandle name;
    CUevent first, second;
    CUdeviceptr a = alloc(s);
    launch(a, s);
    MUST(cuEventCreate(&first, 2 | 4));
    MUST(cuEventRecord(first, s));
    if (way == 3)
        a = alloc(s);
    MUST(cuIpcGetEventHandle(&name, first));
    send_name(to_other[1], &name);
    receive_name(from_other[0], &name);
    MUST(cuIpcOpenEventHandle(&second, name));
    if (way == 1)
        MUST(cuEventSynchronize(second));
    else if (way == 2)
        while (cuEventQuery(second) == 600)
            usleep(100);
    else
        MUST(cuStreamWaitEvent(t, second, 0));
    launch(a, t); /* wrong where it was allocated after the record */
    MUST(cuCtxSynchronize());
    MUST(cuEventDestroy(second));
    close(to_other[1]);
    wait(NULL);
}

int main(int count, char **names) {
    const struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"wrong", wrong}, {"no-stderr", no_stderr}, {"small-files", small_files}, {"many-threads", many_threads},
               {"wrong-handles", wrong_handles}, {"replaced", replaced}, {"spawning", spawning},
               {"many-arguments", many_arguments},
               {"arguments", arguments}, {"at-once", at_once}, {"threads-that-end", threads_that_end},
               {"closes-all", closes_all}, {"numbers", numbers}, {"opened-twice", opened_twice}, {"relayed", relayed}};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (count > 1 && strcmp(names[1], all[i].name) == 0) {
            way = count > 2 ? atoi(names[2]) : 0;
            if (all[i].run == opened_twice)
                exporter();
            if (all[i].run == relayed)
                relay();
            begin();
            all[i].run();
            printf("done\n");
            return 0;
        }
    }
    return 7;
}
