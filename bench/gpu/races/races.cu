// Small programs after ordering bugs that were reported: each with one order left out, and right.
// README.md says how they are run, and how one is added.
//
// races list                                              name, class, link, the operation that --delay delays
// races NAME wrong|right [--delay MS] [--rounds N]        0: all results were right, 1: one was not
#include "frame.cuh"

// ---- K: kernels and copies of two streams on memory that lives on

// A block of the cache is stored to the host beside the kernel that writes it.
RACE(offload_before_write, "K", "vllm-project/vllm#45704", "the kernel that writes the block") {
    cudaStream_t compute = stream(), store = stream();
    int *block = device(), *saved = pinned(), value = fresh();
    late(compute);
    fill<<<GRID, THREADS, 0, compute>>>(block, COUNT, value);
    if (right)
        handOver(compute, store);
    MUST(cudaMemcpyAsync(saved, block, BYTES, cudaMemcpyDeviceToHost, store));
    MUST(cudaStreamSynchronize(store));
    return holds(saved, COUNT, value);
}

// A block of the cache is loaded from the host while the request before still reads it.
RACE(reload_over_reader, "K", "vllm-project/vllm#47282", "the kernel that reads the block") {
    cudaStream_t compute = stream(), load = stream();
    int first = fresh(), *block = device(first), *out = device(), *saved = pinned(fresh());
    late(compute);
    add<<<GRID, THREADS, 0, compute>>>(out, block, COUNT, 0);
    if (right)
        handOver(compute, load);
    MUST(cudaMemcpyAsync(block, saved, BYTES, cudaMemcpyHostToDevice, load));
    return deviceHolds(out, COUNT, first);
}

// The event is recorded on the stream of the copies down, the data come up on another.
RACE(event_of_another_stream, "K", "NVIDIA/Megatron-LM#3140", "the copy to the device") {
    cudaStream_t compute = stream(), up = stream(), down = stream();
    int value = fresh(), *weights = device(), *gradients = device(), *out = device();
    int *updated = pinned(value), *saved = pinned();
    MUST(cudaMemcpyAsync(saved, gradients, BYTES, cudaMemcpyDeviceToHost, down));
    late(up);
    MUST(cudaMemcpyAsync(weights, updated, BYTES, cudaMemcpyHostToDevice, up));
    handOver(right ? up : down, compute);
    add<<<GRID, THREADS, 0, compute>>>(out, weights, COUNT, 0);
    return deviceHolds(out, COUNT, value);
}

// The row of a request that has ended is given to the next one and written while the forward pass reads it.
RACE(row_recycled, "K", "sgl-project/sglang#18744", "the kernel that reads the row") {
    cudaStream_t schedule = stream(), forward = stream();
    int *table = device(), *out = device(), first = fresh(), second = fresh();
    fill<<<GRID, THREADS, 0, schedule>>>(table + ROW, ROW, first);
    handOver(schedule, forward);
    late(forward);
    add<<<GRID, THREADS, 0, forward>>>(out, table + ROW, ROW, 0);
    if (right)
        handOver(forward, schedule);
    fill<<<GRID, THREADS, 0, schedule>>>(table + ROW, ROW, second);
    return deviceHolds(out, ROW, first);
}

// Two buffers in turns: who writes one again does not wait for who read it two steps ago.
RACE(double_buffer, "K", "sgl-project/sglang#26380", "the first step's kernel that reads") {
    cudaStream_t schedule = stream(), forward = stream();
    int *buffers[] = {device(), device()}, *out = device(), value = fresh();
    cudaEvent_t wasRead[] = {event(), event()};
    for (int step = 0; step < 4; step++) {
        int *buffer = buffers[step % 2];
        if (right && step >= 2)
            MUST(cudaStreamWaitEvent(schedule, wasRead[step % 2], 0));
        fill<<<GRID, THREADS, 0, schedule>>>(buffer, ROW, value + step);
        handOver(schedule, forward);
        if (step == 0)
            late(forward);
        add<<<GRID, THREADS, 0, forward>>>(out + step * ROW, buffer, ROW, -step);
        MUST(cudaEventRecord(wasRead[step % 2], forward));
    }
    return deviceHolds(out, COUNT, value);
}

// The shards of the next layer are gathered into the buffer that this layer's kernel still reads.
RACE(gather_over_use, "K", "NVIDIA/Megatron-LM#6202", "the kernel that reads the gathered weights") {
    cudaStream_t compute = stream(), comm = stream();
    int first = fresh(), *gathered = device(first), *shards = device(fresh()), *out = device();
    late(compute);
    add<<<GRID, THREADS, 0, compute>>>(out, gathered, COUNT, 0);
    if (right)
        handOver(compute, comm);
    for (int at = 0; at < COUNT; at += ROW)
        MUST(cudaMemcpyAsync(gathered + at, shards + at, ROW_BYTES, cudaMemcpyDeviceToDevice, comm));
    return deviceHolds(out, COUNT, first);
}

// The event of a gather is recorded before its last part.
RACE(event_before_last_part, "K", "huggingface/trl#7195", "the last shard's copy") {
    cudaStream_t compute = stream(), comm = stream();
    int value = fresh(), *gathered = device(), *shards = device(value), *out = device();
    cudaEvent_t isGathered = event();
    for (int at = 0; at < COUNT; at += ROW) {
        if (at == 3 * ROW) {
            if (!right)
                MUST(cudaEventRecord(isGathered, comm));
            late(comm);
        }
        MUST(cudaMemcpyAsync(gathered + at, shards + at, ROW_BYTES, cudaMemcpyDeviceToDevice, comm));
    }
    if (right)
        MUST(cudaEventRecord(isGathered, comm));
    MUST(cudaStreamWaitEvent(compute, isGathered, 0));
    add<<<GRID, THREADS, 0, compute>>>(out, gathered, COUNT, 0);
    return deviceHolds(out, COUNT, value);
}

// Two streams fill one bucket of gradients, the reduction waits for one of them.
RACE(bucket_of_two_streams, "K", "deepspeedai/DeepSpeed#8080", "the second stream's kernel") {
    cudaStream_t first = stream(), second = stream(), reduce = stream();
    int *bucket = device(), *out = device(), value = fresh();
    fill<<<GRID, THREADS, 0, first>>>(bucket, COUNT / 2, value);
    late(second);
    fill<<<GRID, THREADS, 0, second>>>(bucket + COUNT / 2, COUNT / 2, value);
    handOver(first, reduce);
    if (right)
        handOver(second, reduce);
    add<<<GRID, THREADS, 0, reduce>>>(out, bucket, COUNT, 0);
    return deviceHolds(out, COUNT, value);
}

// A sum is set to zero on one stream and added to on another.
RACE(reset_elsewhere, "K", "Netflix/vmaf#1583", "the fill with zero") {
    cudaStream_t reset = stream(), compute = stream();
    int *sum = device(fresh()), value = fresh();
    late(reset);
    MUST(cudaMemsetAsync(sum, 0, BYTES, reset));
    if (right)
        handOver(reset, compute);
    add<<<GRID, THREADS, 0, compute>>>(sum, sum, COUNT, value);
    return deviceHolds(sum, COUNT, value);
}

// The same in a graph: its branches meet after the sum, not before it.
RACE(reset_in_graph, "K", "Netflix/vmaf#1583", "the fill with zero, a node") {
    cudaStream_t reset = stream(), compute = stream();
    int *sum = device(fresh()), value = fresh();
    cudaGraphExec_t exec = captured(compute, [&] {
        handOver(compute, reset);
        late(reset);
        MUST(cudaMemsetAsync(sum, 0, BYTES, reset));
        if (right)
            handOver(reset, compute);
        add<<<GRID, THREADS, 0, compute>>>(sum, sum, COUNT, value);
        if (!right)
            handOver(reset, compute);
    });
    MUST(cudaGraphLaunch(exec, compute));
    return deviceHolds(sum, COUNT, value);
}

// The wait comes before the record: there is nothing to wait for.
RACE(event_recorded_late, "K", "NVIDIA/cudnn-frontend#801", "the kernel that writes") {
    cudaStream_t produce = stream(), consume = stream();
    int *block = device(), *out = device(), value = fresh();
    cudaEvent_t ready = event();
    late(produce);
    fill<<<GRID, THREADS, 0, produce>>>(block, COUNT, value);
    if (right)
        MUST(cudaEventRecord(ready, produce));
    MUST(cudaStreamWaitEvent(consume, ready, 0));
    if (!right)
        MUST(cudaEventRecord(ready, produce));
    add<<<GRID, THREADS, 0, consume>>>(out, block, COUNT, 0);
    return deviceHolds(out, COUNT, value);
}

// One event for two steps: the second record replaces the first before the host has waited for that.
RACE(event_recorded_again, "K", "vllm-project/vllm#39115", "the first step's copy") {
    cudaStream_t first = stream(), second = stream();
    int value = fresh(), *tokens = device(value), *next = device(fresh()), *host = pinned(), *nextHost = pinned();
    cudaEvent_t copied = event(), nextCopied = event();
    late(first);
    MUST(cudaMemcpyAsync(host, tokens, BYTES, cudaMemcpyDeviceToHost, first));
    MUST(cudaEventRecord(copied, first));
    MUST(cudaMemcpyAsync(nextHost, next, BYTES, cudaMemcpyDeviceToHost, second));
    MUST(cudaEventRecord(right ? nextCopied : copied, second));
    MUST(cudaEventSynchronize(copied));
    return holds(host, COUNT, value);
}

// Numbers of blocks are copied on one stream, and used on the one with the higher priority.
RACE(ids_on_another_stream, "K", "LMCache/LMCache#2916", "the copy of the numbers") {
    cudaStream_t normal = stream(), high;
    MUST(cudaStreamCreateWithPriority(&high, cudaStreamNonBlocking, -1));
    streams.push_back(high);
    int *cache = device(), *ids = device(), *out = device(), *staged = pinned(1), value = fresh();
    fill<<<1, 1, 0, normal>>>(cache + 1, 1, value);
    MUST(cudaStreamSynchronize(normal));
    late(normal);
    MUST(cudaMemcpyAsync(ids, staged, BYTES, cudaMemcpyHostToDevice, normal));
    if (right)
        handOver(normal, high);
    gather<<<GRID, THREADS, 0, high>>>(out, cache, ids, COUNT);
    return deviceHolds(out, COUNT, value);
}

// The output is copied after an event that was recorded before the graph was launched.
RACE(copy_before_graph, "K", "vllm-project/vllm-ascend#4233", "the launch of the graph") {
    cudaStream_t compute = stream(), copy = stream();
    int *block = device(), *host = pinned(), value = fresh();
    cudaEvent_t done = event();
    cudaGraphExec_t exec = captured(compute, [&] { fill<<<GRID, THREADS, 0, compute>>>(block, COUNT, value); });
    if (!right)
        MUST(cudaEventRecord(done, compute));
    late(compute);
    MUST(cudaGraphLaunch(exec, compute));
    if (right)
        MUST(cudaEventRecord(done, compute));
    MUST(cudaStreamWaitEvent(copy, done, 0));
    MUST(cudaMemcpyAsync(host, block, BYTES, cudaMemcpyDeviceToHost, copy));
    MUST(cudaStreamSynchronize(copy));
    return holds(host, COUNT, value);
}

// ---- H: the host writes what a pending copy reads, or reads what it writes

// The page table of the next step is written where the copy of this step's still reads.
RACE(staging_overwritten, "H", "NVIDIA/TensorRT-LLM#15546", "the first step's copy") {
    cudaStream_t compute = stream();
    int *staging = pinned(), *tables[] = {device(), device()}, first = fresh(), second = fresh();
    std::fill_n(staging, COUNT, first);
    late(compute);
    MUST(cudaMemcpyAsync(tables[0], staging, BYTES, cudaMemcpyHostToDevice, compute));
    if (right)
        MUST(cudaStreamSynchronize(compute));
    std::fill_n(staging, COUNT, second);
    MUST(cudaMemcpyAsync(tables[1], staging, BYTES, cudaMemcpyHostToDevice, compute));
    return deviceHolds(tables[0], COUNT, first);
}

// A kernel reads pinned memory when it runs, not when it is launched.
RACE(kernel_reads_host_memory, "H", "NVIDIA/TensorRT-LLM#15607", "the kernel that reads") {
    cudaStream_t compute = stream();
    int first = fresh(), *offsets = pinned(first), *out = device();
    late(compute);
    add<<<GRID, THREADS, 0, compute>>>(out, offsets, COUNT, 0);
    if (right)
        MUST(cudaStreamSynchronize(compute));
    std::fill_n(offsets, COUNT, fresh());
    return deviceHolds(out, COUNT, first);
}

// The host reads logits whose copy is pending.
RACE(result_read_early, "H", "ggml-org/llama.cpp#18310", "the copy to the host") {
    cudaStream_t compute = stream();
    int value = fresh(), *logits = device(value), *host = pinned();
    late(compute);
    MUST(cudaMemcpyAsync(host, logits, BYTES, cudaMemcpyDeviceToHost, compute));
    if (right)
        MUST(cudaStreamSynchronize(compute));
    return holds(host, COUNT, value);
}

// The host waits for an event that was recorded before the copy.
RACE(event_before_copy, "H", "vllm-project/vllm#36013", "the copy to the host") {
    cudaStream_t compute = stream();
    int *counts = device(), *host = pinned(), value = fresh();
    cudaEvent_t ready = event();
    fill<<<GRID, THREADS, 0, compute>>>(counts, COUNT, value);
    if (!right)
        MUST(cudaEventRecord(ready, compute));
    late(compute);
    MUST(cudaMemcpyAsync(host, counts, BYTES, cudaMemcpyDeviceToHost, compute));
    if (right)
        MUST(cudaEventRecord(ready, compute));
    MUST(cudaEventSynchronize(ready));
    return holds(host, COUNT, value);
}

// The host writes where a copy is still to land.
RACE(copy_lands_over_host, "H", "vllm-project/vllm#53613", "the copy to the host") {
    cudaStream_t compute = stream();
    int *accepted = device(fresh()), *host = pinned(), value = fresh();
    late(compute);
    MUST(cudaMemcpyAsync(host, accepted, BYTES, cudaMemcpyDeviceToHost, compute));
    if (right)
        MUST(cudaStreamSynchronize(compute));
    std::fill_n(host, COUNT, value);
    MUST(cudaStreamSynchronize(compute));
    return holds(host, COUNT, value);
}

// Pinned memory goes back to the program's own pool while it is copied from.
RACE(pinned_pool, "H", "NVIDIA/cudf#24255", "the first copy") {
    cudaStream_t compute = stream();
    std::vector<int *> idle = {pinned()};
    int *out[] = {device(), device()}, first = fresh(), values[] = {first, fresh()};
    for (int turn = 0; turn < 2; turn++) {
        int *offsets = idle.back();
        idle.pop_back();
        std::fill_n(offsets, COUNT, values[turn]);
        if (turn == 0)
            late(compute);
        MUST(cudaMemcpyAsync(out[turn], offsets, BYTES, cudaMemcpyHostToDevice, compute));
        if (right)
            MUST(cudaStreamSynchronize(compute));
        idle.push_back(offsets);
    }
    return deviceHolds(out[0], COUNT, first);
}

// Two buffers in turns: the host waits for the other buffer's event.
RACE(ring_of_two, "H", "vllm-project/vllm#31841", "the first step's copy") {
    cudaStream_t copies[] = {stream(), stream()};
    int *ring[] = {pinned(), pinned()}, *out[] = {device(), device(), device()}, first = fresh();
    cudaEvent_t copied[] = {event(), event()};
    for (int step = 0; step < 3; step++) {
        int slot = step % 2;
        if (step == 2)
            MUST(cudaEventSynchronize(copied[right ? slot : 1 - slot]));
        std::fill_n(ring[slot], COUNT, first + step);
        if (step == 0)
            late(copies[slot]);
        MUST(cudaMemcpyAsync(out[step], ring[slot], BYTES, cudaMemcpyHostToDevice, copies[slot]));
        MUST(cudaEventRecord(copied[slot], copies[slot]));
    }
    return deviceHolds(out[0], COUNT, first);
}

// ---- L: memory is used and not allocated yet, or freed already

// Memory is freed on its own stream while another reads it, and allocated again.
RACE(freed_before_use, "L", "NVlabs/cuda-oxide#619", "the kernel that reads") {
    cudaStream_t own = stream(), other = stream();
    int *out = device(), first = fresh(), second = fresh(), *a = alloc(own);
    fill<<<GRID, THREADS, 0, own>>>(a, COUNT, first);
    handOver(own, other);
    late(other);
    add<<<GRID, THREADS, 0, other>>>(out, a, COUNT, 0);
    if (right)
        handOver(other, own);
    MUST(cudaFreeAsync(a, own));
    int *b = alloc(own);
    fill<<<GRID, THREADS, 0, own>>>(b, COUNT, second);
    MUST(cudaFreeAsync(b, own));
    return deviceHolds(out, COUNT, first);
}

// Memory is used on a stream that does not come after its allocation: the use before may still run.
RACE(used_before_alloc, "L", "NVIDIA/cuda-python#2657", "the kernel that used the memory before") {
    cudaStream_t own = stream(), other = stream();
    int *out = device(), first = fresh(), second = fresh(), *a = alloc(own);
    late(own);
    fill<<<GRID, THREADS, 0, own>>>(a, COUNT, first);
    MUST(cudaFreeAsync(a, own));
    int *b = alloc(own);
    if (right)
        handOver(own, other);
    fill<<<GRID, THREADS, 0, other>>>(b, COUNT, second);
    handOver(other, own);
    add<<<GRID, THREADS, 0, own>>>(out, b, COUNT, 0);
    MUST(cudaFreeAsync(b, own));
    return deviceHolds(out, COUNT, second);
}

// Memory is freed on the default stream, which waits for no non-blocking stream.
RACE(freed_on_default_stream, "L", "supranational/sppark#81", "the kernel that reads") {
    cudaStream_t own = stream(), last = right ? own : nullptr;
    int *out = device(), first = fresh(), second = fresh(), *a = alloc(own);
    fill<<<GRID, THREADS, 0, own>>>(a, COUNT, first);
    MUST(cudaStreamSynchronize(own));
    late(own);
    add<<<GRID, THREADS, 0, own>>>(out, a, COUNT, 0);
    MUST(cudaFreeAsync(a, last));
    int *b = alloc(last);
    fill<<<GRID, THREADS, 0, last>>>(b, COUNT, second);
    MUST(cudaFreeAsync(b, last));
    return deviceHolds(out, COUNT, first);
}

// A pool of the program's own, over memory that CUDA sees as one allocation, gives a block to another stream at once.
RACE(block_of_own_pool, "L", "deepspeedai/DeepSpeed#7965", "the first stream's kernel that reads") {
    cudaStream_t first = stream(), second = stream();
    int value = fresh(), *out = device();
    std::vector<int *> idle = {device(value)};
    int *block = idle.back();
    idle.pop_back();
    late(first);
    add<<<GRID, THREADS, 0, first>>>(out, block, COUNT, 0);
    idle.push_back(block);
    if (right)
        handOver(first, second);
    fill<<<GRID, THREADS, 0, second>>>(idle.back(), COUNT, fresh());
    return deviceHolds(out, COUNT, value);
}

// ---- G: a graph is launched again with inputs or outputs that are not its own any more

// A graph's own memory is read on another stream while the graph is launched again.
RACE(graph_memory_relaunched, "G", "vllm-project/vllm#31584", "the kernel that reads the first launch's output") {
    cudaStream_t own = stream(), other = stream();
    int first = fresh(), *input = device(first), *out = device(), *made = nullptr;
    cudaGraphExec_t exec = captured(
        own,
        [&] {
            MUST(cudaMallocAsync(&made, BYTES, own));
            add<<<GRID, THREADS, 0, own>>>(made, input, COUNT, 0);
        },
        cudaGraphInstantiateFlagAutoFreeOnLaunch);
    MUST(cudaGraphLaunch(exec, own));
    handOver(own, other);
    late(other);
    add<<<GRID, THREADS, 0, other>>>(out, made, COUNT, 0);
    if (right)
        handOver(other, own);
    fill<<<GRID, THREADS, 0, own>>>(input, COUNT, fresh());
    MUST(cudaGraphLaunch(exec, own));
    handOver(other, own);
    MUST(cudaFreeAsync(made, own));
    return deviceHolds(out, COUNT, first);
}

// The input of the next launch is copied over that of this one.
RACE(replay_input_overwritten, "G", "NVIDIA/TensorRT-LLM#14128", "the first launch") {
    cudaStream_t compute = stream(), copy = stream();
    int first = fresh(), *input = device(first), *out = device(), *next = pinned(fresh());
    cudaGraphExec_t exec = captured(compute, [&] { add<<<GRID, THREADS, 0, compute>>>(out, input, COUNT, 0); });
    late(compute);
    MUST(cudaGraphLaunch(exec, compute));
    if (right)
        handOver(compute, copy);
    MUST(cudaMemcpyAsync(input, next, BYTES, cudaMemcpyHostToDevice, copy));
    return deviceHolds(out, COUNT, first);
}

// A graph is launched before its input is there.
RACE(replay_before_input, "G", "vllm-project/vllm#44868", "the copy of the input") {
    cudaStream_t compute = stream(), copy = stream();
    int value = fresh(), *input = device(), *out = device(), *next = pinned(value);
    cudaGraphExec_t exec = captured(compute, [&] { add<<<GRID, THREADS, 0, compute>>>(out, input, COUNT, 0); });
    late(copy);
    MUST(cudaMemcpyAsync(input, next, BYTES, cudaMemcpyHostToDevice, copy));
    if (right)
        handOver(copy, compute);
    MUST(cudaGraphLaunch(exec, compute));
    return deviceHolds(out, COUNT, value);
}

// A graph reads where its input was when it was captured. That memory is another's by now, whatever is delayed.
RACE(replay_input_moved, "G", "vllm-project/vllm#53915", "-") {
    cudaStream_t own = stream();
    int value = fresh(), *moved = device(value), *out = device(), *input = alloc(own);
    auto reads = [&](int *from) {
        return captured(own, [&] { add<<<GRID, THREADS, 0, own>>>(out, from, COUNT, 0); });
    };
    fill<<<GRID, THREADS, 0, own>>>(input, COUNT, fresh());
    cudaGraphExec_t exec = reads(input);
    MUST(cudaGraphLaunch(exec, own));
    MUST(cudaFreeAsync(input, own));
    int *others = alloc(own);
    fill<<<GRID, THREADS, 0, own>>>(others, COUNT, fresh());
    MUST(cudaGraphLaunch(right ? reads(moved) : exec, own));
    MUST(cudaFreeAsync(others, own));
    return deviceHolds(out, COUNT, value);
}

// The arena that a graph writes is replaced after the capture. That memory is another's by now, whatever is delayed.
RACE(replay_into_replaced_arena, "G", "vllm-project/vllm#55336", "-") {
    cudaStream_t own = stream();
    int value = fresh(), *input = device(fresh()), *grown = device(), *out = device(), *arena = alloc(own);
    auto writes = [&](int *to) {
        return captured(own, [&] { add<<<GRID, THREADS, 0, own>>>(to, input, COUNT, 0); });
    };
    cudaGraphExec_t exec = writes(arena);
    MUST(cudaGraphLaunch(exec, own));
    MUST(cudaFreeAsync(arena, own));
    int *others = alloc(own);
    fill<<<GRID, THREADS, 0, own>>>(others, COUNT, value);
    MUST(cudaGraphLaunch(right ? writes(grown) : exec, own));
    add<<<GRID, THREADS, 0, own>>>(out, others, COUNT, 0);
    MUST(cudaFreeAsync(others, own));
    return deviceHolds(out, COUNT, value);
}

// The output of a launch is copied on another stream, and the next launch writes it.
RACE(replay_over_output, "G", "vllm-project/vllm#31584", "the copy of the output") {
    cudaStream_t compute = stream(), copy = stream();
    int first = fresh(), *input = device(first), *out = device(), *host = pinned();
    cudaGraphExec_t exec = captured(compute, [&] { add<<<GRID, THREADS, 0, compute>>>(out, input, COUNT, 0); });
    MUST(cudaGraphLaunch(exec, compute));
    handOver(compute, copy);
    late(copy);
    MUST(cudaMemcpyAsync(host, out, BYTES, cudaMemcpyDeviceToHost, copy));
    if (right)
        handOver(copy, compute);
    fill<<<GRID, THREADS, 0, compute>>>(input, COUNT, fresh());
    MUST(cudaGraphLaunch(exec, compute));
    MUST(cudaStreamSynchronize(copy));
    return holds(host, COUNT, first);
}

// ---- D: the default stream is taken to order what it does not

// A copy without a stream from device to device does not wait, nor does a non-blocking stream wait for it.
RACE(copy_without_stream, "D", "paiml/aprender#2767", "the copy") {
    cudaStream_t own = stream();
    int value = fresh(), *source = device(value), *block = device(), *out = device();
    late(nullptr);
    MUST(cudaMemcpy(block, source, BYTES, cudaMemcpyDeviceToDevice));
    if (right)
        MUST(cudaStreamSynchronize(nullptr));
    add<<<GRID, THREADS, 0, own>>>(out, block, COUNT, 0);
    return deviceHolds(out, COUNT, value);
}

// The default stream publishes what a stream reads that is non-blocking; a blocking one would wait.
RACE(published_on_default_stream, "D", "Neroued/ninfer#210", "the copy") {
    cudaStream_t compute = stream(right ? cudaStreamDefault : cudaStreamNonBlocking);
    int value = fresh(), *members = pinned(value), *table = device(), *out = device();
    late(nullptr);
    MUST(cudaMemcpyAsync(table, members, BYTES, cudaMemcpyHostToDevice, nullptr));
    add<<<GRID, THREADS, 0, compute>>>(out, table, COUNT, 0);
    return deviceHolds(out, COUNT, value);
}

// The input is made on the caller's stream, the kernel runs on the default stream.
RACE(kernel_on_default_stream, "D", "NVIDIA/cudnn-frontend#483", "the kernel that makes the input") {
    cudaStream_t current = stream();
    int *input = device(), *out = device(), value = fresh();
    late(current);
    fill<<<GRID, THREADS, 0, current>>>(input, COUNT, value);
    add<<<GRID, THREADS, 0, right ? current : nullptr>>>(out, input, COUNT, 0);
    return deviceHolds(out, COUNT, value);
}

// Each thread has a default stream of its own: what another thread has launched may still run.
RACE(default_streams_of_two_threads, "D", "NVIDIA/cuda-python#2657", "the other thread's kernel") {
    int *block = device(), *out = device(), value = fresh();
    std::promise<void> launched, ended;
    std::thread other([&] {
        late(cudaStreamPerThread);
        fill<<<GRID, THREADS, 0, cudaStreamPerThread>>>(block, COUNT, value);
        if (right)
            MUST(cudaStreamSynchronize(cudaStreamPerThread));
        launched.set_value();
        ended.get_future().wait();
    });
    launched.get_future().wait();
    add<<<GRID, THREADS, 0, cudaStreamPerThread>>>(out, block, COUNT, 0);
    bool isRight = deviceHolds(out, COUNT, value);
    ended.set_value();
    other.join();
    return isRight;
}

// ---- P: a kernel that starts early

__global__ void startsNext(int *to, int count, int value, unsigned long long nanoseconds) {
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
    if (nanoseconds)
        spinFor(nanoseconds);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        to[i] = value;
}

__global__ void startsEarly(int *to, const int *from, int count, bool waits) {
#if __CUDA_ARCH__ >= 900
    if (waits)
        cudaGridDependencySynchronize();
#endif
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
        to[i] = from[i];
}

// A kernel that may start before the one before it has ended does not wait for that one's stores.
RACE(starts_early, "P", "Dao-AILab/flash-attention#2481", "the stores of the first kernel, inside it") {
    cudaStream_t compute = stream();
    int *block = device(), *out = device(), value = fresh();
    startsNext<<<32, THREADS, 0, compute>>>(block, ROW, value, delayNanoseconds);
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(32);
    config.blockDim = dim3(THREADS);
    config.stream = compute;
    config.attrs = &early;
    config.numAttrs = 1;
    MUST(cudaLaunchKernelEx(&config, startsEarly, out, static_cast<const int *>(block), ROW, right));
    return deviceHolds(out, ROW, value);
}

// ---- S: orders that CUDA does not promise and its driver gives: the wrong program's result is right

// A copy from pageable memory may return before its data are on the device.
RACE(pageable_upload, "S", "ashalliants/ninfer-3090#44", "-") {
    cudaStream_t own = stream();
    int value = fresh(), *block = device(), *out = device();
    std::vector<int> host(COUNT, value);
    MUST(cudaMemcpy(block, host.data(), BYTES, cudaMemcpyHostToDevice));
    if (right)
        MUST(cudaStreamSynchronize(nullptr));
    add<<<GRID, THREADS, 0, own>>>(out, block, COUNT, 0);
    return deviceHolds(out, COUNT, value);
}

// An asynchronous copy from pageable memory may read it later.
RACE(pageable_source_overwritten, "S", "vllm-project/vllm#32799", "the copy") {
    cudaStream_t compute = stream();
    int first = fresh(), *table = device();
    std::vector<int> host(COUNT, first);
    late(compute);
    MUST(cudaMemcpyAsync(table, host.data(), BYTES, cudaMemcpyHostToDevice, compute));
    if (right)
        MUST(cudaStreamSynchronize(compute));
    std::fill_n(host.data(), COUNT, fresh());
    return deviceHolds(table, COUNT, first);
}

// cudaFree may wait for the kernels that use the memory.
RACE(freed_while_queued, "S", "ooples/AiDotNet.Tensors#609", "the kernel that reads") {
    cudaStream_t own = stream();
    int *out = device(), *a, *b, first = fresh();
    MUST(cudaMalloc(&a, BYTES));
    fill<<<GRID, THREADS, 0, own>>>(a, COUNT, first);
    late(own);
    add<<<GRID, THREADS, 0, own>>>(out, a, COUNT, 0);
    if (right)
        MUST(cudaStreamSynchronize(own));
    MUST(cudaFree(a));
    MUST(cudaMalloc(&b, BYTES));
    MUST(cudaMemset(b, 0, BYTES));
    MUST(cudaDeviceSynchronize());
    MUST(cudaFree(b));
    return deviceHolds(out, COUNT, first);
}

// cudaFreeHost may wait for the copies that use the memory.
RACE(pinned_memory_freed, "S", "NVIDIA/cudf#22321", "the copy") {
    cudaStream_t own = stream();
    int *block = device(), *host, first = fresh();
    MUST(cudaHostAlloc(&host, BYTES, cudaHostAllocDefault));
    std::fill_n(host, COUNT, first);
    late(own);
    MUST(cudaMemcpyAsync(block, host, BYTES, cudaMemcpyHostToDevice, own));
    if (right)
        MUST(cudaStreamSynchronize(own));
    MUST(cudaFreeHost(host));
    MUST(cudaHostAlloc(&host, BYTES, cudaHostAllocDefault));
    std::fill_n(host, COUNT, fresh());
    MUST(cudaDeviceSynchronize());
    MUST(cudaFreeHost(host));
    return deviceHolds(block, COUNT, first);
}

int main(int count, char **words) { return runRaces(count, words); }
