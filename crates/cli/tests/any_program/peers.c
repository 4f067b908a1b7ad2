/* Memory of one device that another uses, frees of the wrong kind, copies onto themselves: right, and "wrong". */
#include "helpers.h"

static int is_wrong;
static CUcontext here, there;
static CUstream other;
static CUdeviceptr a;

/* Makes a stream of the second device, which is current from here on, and memory of the first. */
static void begin_there(void) {
    MUST(cuCtxGetCurrent(&here));
    MUST(cuMemAlloc(&a, BYTES));
    MUST(cuDevicePrimaryCtxRetain(&there, 1));
    MUST(cuCtxSetCurrent(there));
    MUST(cuStreamCreate(&other, 1));
}

static void end_there(void) {
    MUST(cuStreamSynchronize(other));
    MUST(cuCtxSetCurrent(here));
    MUST(cuMemFree(a));
}

static void used_by_a_kernel(void) {
    begin_there();
    if (!is_wrong)
        MUST(cuCtxEnablePeerAccess(here, 0));
    launch(a, other);
    end_there();
}

static void used_after_access(void) {
    begin_there();
    MUST(cuCtxEnablePeerAccess(here, 0));
    launch(a, other);
    MUST(cuStreamSynchronize(other));
    if (is_wrong)
        MUST(cuCtxDisablePeerAccess(here));
    launch(a, other);
    end_there();
}

/* Access is in one direction. */
static void let_in_the_other_way(void) {
    begin_there();
    if (is_wrong) {
        MUST(cuCtxSetCurrent(here));
        MUST(cuCtxEnablePeerAccess(there, 0));
        MUST(cuCtxSetCurrent(there));
    } else {
        MUST(cuCtxEnablePeerAccess(here, 0));
    }
    launch(a, other);
    end_there();
}

/* In a capture as well. */
static void captured(void) {
    CUgraph graph;
    CUgraphExec exec;
    begin_there();
    if (!is_wrong)
        MUST(cuCtxEnablePeerAccess(here, 0));
    MUST(cuStreamBeginCapture(other, 2));
    launch(a, other);
    MUST(cuStreamEndCapture(other, &graph));
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    MUST(cuGraphLaunch(exec, other)); /* launched there */
    end_there();
}

/* Copies and fills reach all devices' memory; kernels reach the host's, and mappings with access for their device. */
static void reached_without(void) {
    CUmemAllocationProp props = {.type = 1, .location = {1, 0}};
    CUmemAccessDesc access[] = {{{1, 0}, 3}, {{1, 1}, 3}};
    const size_t bytes = 2 << 20;
    unsigned long long handle;
    CUdeviceptr mapped, b;
    void *host;
    begin_there();
    MUST(cuMemAlloc(&b, BYTES));
    MUST(cuMemcpyAsync(b, a, BYTES, other));
    MUST(cuMemHostAlloc(&host, BYTES, 0));
    launch((CUdeviceptr)host, other);
    MUST(cuCtxSetCurrent(here));
    MUST(cuMemAddressReserve(&mapped, bytes, 0, 0, 0));
    MUST(cuMemCreate(&handle, bytes, &props, 0));
    MUST(cuMemMap(mapped, bytes, 0, handle, 0));
    MUST(cuMemSetAccess(mapped, bytes, access, 2));
    MUST(cuCtxSetCurrent(there));
    launch(mapped, other);
    MUST(cuStreamSynchronize(other));
    MUST(cuMemFree(b));
    MUST(cuMemFreeHost(host));
    end_there();
    MUST(cuMemUnmap(mapped, bytes));
}

static void pinned_on_a_stream(void) {
    void *host;
    MUST(cuMemHostAlloc(&host, BYTES, 0));
    launch((CUdeviceptr)host, s);
    if (is_wrong && cuMemFreeAsync((CUdeviceptr)host, s) != 1) /* wrong: pinned on a stream */
        exit(16);
    MUST(cuMemFreeHost(host));
}

static void freed_as_another(void) {
    void *host;
    MUST(cuMemHostAlloc(&host, BYTES, 0));
    MUST(cuMemAlloc(&a, BYTES));
    if (is_wrong && cuMemFree((CUdeviceptr)host) != 1) /* wrong: as a device's */
        exit(17);
    if (is_wrong && cuMemFreeHost((void *)a) != 1)
        exit(18);
    MUST(cuMemFree(a));
    MUST(cuMemFreeHost(host));
}

static void onto_itself(void) {
    a = alloc(s);
    MUST(cuMemsetD8Async(a, 1, BYTES, s));
    MUST(cuMemcpyAsync(a + BYTES / 2 - is_wrong, a, BYTES / 2, s)); /* wrong: onto itself */
    MUST(cuMemFreeAsync(a, s));
}

int main(int count, char **names) {
    const struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"kernel", used_by_a_kernel}, {"after", used_after_access},     {"direction", let_in_the_other_way},
               {"captured", captured},       {"reached", reached_without},     {"pinned", pinned_on_a_stream},
               {"freed", freed_as_another},  {"onto-itself", onto_itself}};
    is_wrong = count > 2;
    for (size_t i = 0; count > 1 && i < sizeof all / sizeof *all; i++) {
        if (strcmp(names[1], all[i].name) == 0) {
            begin();
            all[i].run();
            printf("done\n");
            return 0;
        }
    }
    return 7;
}
