/* Memory of graphs in the order of streams, events and other graphs: counterparts of bench/gpu/any_program/graphs.cu.
 * The second argument makes a program wrong. */
#include "helpers.h"

static int is_wrong;

/* Makes a graph whose memory outlives its launch. */
static CUgraphExec maker(CUdeviceptr *at, unsigned long long flags) {
    CUgraph graph;
    CUgraphExec exec;
    MUST(cuGraphCreate(&graph, 0));
    CUgraphNode born = alloc_node(graph, at);
    kernel_node(graph, &born, 1, *at);
    MUST(cuGraphInstantiateWithFlags(&exec, graph, flags));
    return exec;
}

/* The launch's own stream uses and frees the output of the graph. */
static void by_stream(void) {
    CUdeviceptr a;
    CUgraphExec exec = maker(&a, 0);
    MUST(cuGraphLaunch(exec, s));
    launch(a, is_wrong ? t : s); /* wrong: on another stream */
    MUST(cuCtxSynchronize());
    MUST(cuMemFreeAsync(a, s));
}

/* Another stream uses it after an event. The first stream frees it after that. */
static void by_event(void) {
    CUdeviceptr a;
    CUgraphExec exec = maker(&a, 0);
    MUST(cuGraphLaunch(exec, s));
    hand_over(s, t);
    launch(a, t);
    if (!is_wrong)
        hand_over(t, s);
    MUST(cuMemFreeAsync(a, s)); /* wrong: the reader is not waited for */
}

/* A second graph uses it and has the free node. */
static void by_graph(void) {
    CUgraph graph;
    CUgraphNode node;
    CUdeviceptr a;
    CUgraphExec exec = maker(&a, 0), second;
    MUST(cuGraphCreate(&graph, 0));
    CUgraphNode used = kernel_node(graph, NULL, 0, a);
    MUST(cuGraphAddMemFreeNode(&node, graph, &used, 1, a));
    MUST(cuGraphInstantiateWithFlags(&second, graph, 0));
    for (int i = 0; i < 2; i++) {
        MUST(cuGraphLaunch(exec, s));
        if (is_wrong && i == 1)
            MUST(cuGraphLaunch(second, t)); /* wrong: the launch is not waited for */
        else
            MUST(cuGraphLaunch(second, s));
    }
    MUST(cuCtxSynchronize());
}

/* A loop of launches that free the output of the launch before. Another stream reads it each time. */
static void auto_free(void) {
    CUdeviceptr a;
    CUgraphExec exec = maker(&a, 1);
    for (int i = 0; i < 3; i++) {
        MUST(cuGraphLaunch(exec, s)); /* wrong: the reader may still run */
        hand_over(s, t);
        launch(a, t);
        if (!is_wrong || i != 1)
            hand_over(t, s);
    }
    MUST(cuCtxSynchronize());
}

/* A loop of launches. The program frees the output of each before the next. */
static void freed_each_time(void) {
    CUdeviceptr a;
    CUgraphExec exec = maker(&a, 0);
    for (int i = 0; i < 3; i++) {
        MUST(cuGraphLaunch(exec, s));
        launch(a, s);
        if (is_wrong && i == 2)
            MUST(cuMemFreeAsync(a, t)); /* wrong: another stream frees it */
        else
            MUST(cuMemFreeAsync(a, s));
    }
    MUST(cuCtxSynchronize());
}

/* Two streams use memory, and a third one frees it. */
static void freed_elsewhere(void) {
    CUstream u;
    MUST(cuStreamCreate(&u, 1));
    CUdeviceptr a = alloc(s);
    hand_over(s, t);
    launch(a, s);
    launch(a, t);
    hand_over(s, u);
    if (!is_wrong)
        hand_over(t, u);
    MUST(cuMemFreeAsync(a, u)); /* wrong: one of the two is not waited for */
    MUST(cuCtxSynchronize());
}

/* Memory that is freed, and the host waits for that. */
static void gone(CUdeviceptr at) {
    MUST(cuMemFreeAsync(at, s));
    MUST(cuStreamSynchronize(s));
}

static void set_node(CUgraphNode node, CUdeviceptr at) {
    int length = BYTES;
    void *params[] = {&at, &length};
    CUDA_KERNEL_NODE_PARAMS kernel = {touch, {1, 1, 1}, {1, 1, 1}, 0, params, NULL, NULL, NULL};
    MUST(cuGraphKernelNodeSetParams(node, &kernel));
}

/* A captured node gets other memory before the graph is used. */
static void captured_node(void) {
    CUgraph graph;
    CUgraphNode nodes[2];
    size_t count = 2;
    CUdeviceptr a = alloc(s), b = alloc(s);
    MUST(cuStreamBeginCapture(s, 0));
    launch(a, s);
    MUST(cuStreamEndCapture(s, &graph));
    if (!is_wrong) {
        MUST(cuGraphGetNodes(graph, nodes, &count));
        set_node(nodes[0], b);
    }
    gone(a);
    run_graph(graph, 2, 0); /* wrong: the node is as it was captured */
}

/* A node that does not exist is not destroyed, and that changes nothing. */
static void refused_change(void) {
    CUgraph graph;
    CUdeviceptr a = alloc(s);
    MUST(cuStreamBeginCapture(s, 0));
    launch(a, s);
    MUST(cuStreamEndCapture(s, &graph));
    if (cuGraphDestroyNode((CUgraphNode)0x1234) == 0)
        exit(3);
    if (is_wrong)
        gone(a);
    run_graph(graph, 2, 0); /* wrong: the node is there */
}

/* A copy lacks the node whose memory is freed. */
static void copied_node(void) {
    CUgraph graph, copy;
    CUgraphNode nodes[2];
    size_t count = 2;
    CUdeviceptr a = alloc(s), b = alloc(s);
    MUST(cuGraphCreate(&graph, 0));
    kernel_node(graph, NULL, 0, a);
    kernel_node(graph, NULL, 0, b);
    MUST(cuGraphClone(&copy, graph));
    if (!is_wrong) {
        MUST(cuGraphGetNodes(copy, nodes, &count));
        MUST(cuGraphDestroyNode(nodes[0]));
    }
    gone(a);
    run_graph(copy, 2, 0); /* wrong: the copy has the node */
}

/* An instance gets the memory of another graph. */
static void updated(void) {
    CUgraph first, second;
    CUgraphExec exec;
    CUdeviceptr a = alloc(s), b = alloc(s);
    MUST(cuGraphCreate(&first, 0));
    MUST(cuGraphCreate(&second, 0));
    kernel_node(first, NULL, 0, a);
    kernel_node(second, NULL, 0, b);
    MUST(cuGraphInstantiateWithFlags(&exec, first, 0));
    MUST(cuGraphLaunch(exec, s));
    MUST(cuGraphExecUpdate(exec, second, NULL));
    gone(is_wrong ? b : a);
    MUST(cuGraphLaunch(exec, s)); /* wrong: the instance was updated */
    MUST(cuCtxSynchronize());
}

/* A graph has memory of its own, and a node of it gets other memory. */
static void changed_beside_memory(void) {
    CUgraph graph;
    CUgraphExec exec;
    CUdeviceptr own, b = alloc(s);
    MUST(cuGraphCreate(&graph, 0));
    CUgraphNode born = alloc_node(graph, &own), node = kernel_node(graph, &born, 1, own);
    if (!is_wrong)
        set_node(node, b);
    MUST(cuGraphInstantiateWithFlags(&exec, graph, 0));
    for (int round = 0; round < 2 - is_wrong; round++) {
        MUST(cuGraphLaunch(exec, s));
        if (!is_wrong)
            launch(own, s);
        MUST(cuMemFreeAsync(own, is_wrong ? t : s)); /* wrong: what launched it is not waited for */
        MUST(cuCtxSynchronize());
    }
}

int main(int count, char **names) {
    const struct {
        const char *name;
        void (*run)(void);
    } all[] = {{"by-stream", by_stream}, {"by-event", by_event}, {"by-graph", by_graph}, {"auto-free", auto_free},
               {"freed-each-time", freed_each_time}, {"freed-elsewhere", freed_elsewhere},
               {"captured-node", captured_node}, {"copied-node", copied_node}, {"updated", updated},
               {"changed-beside-memory", changed_beside_memory}, {"refused-change", refused_change}};
    is_wrong = count > 2 && strcmp(names[2], "wrong") == 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        if (count > 1 && strcmp(names[1], all[i].name) == 0) {
            begin();
            all[i].run();
            printf("done\n");
            return 0;
        }
    }
    return 7;
}
