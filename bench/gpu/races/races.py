"""Small programs of PyTorch after ordering bugs that were reported: each with one order left out, and right.

races.py list                                              name, class, link, the operation that --delay delays
races.py NAME wrong|right [--delay MS] [--rounds N]        0: all results were right, 1: one was not

README.md says how they are run, and how one is added.
"""

import argparse
import itertools
import sys

import torch

RACES = {}
COUNT = 1 << 20
CYCLES_OF_A_MILLISECOND = 2_000_000
right, delay = False, 0.0
values = itertools.count(1001)


def race(kind, link, delayed):
    def listed(run):
        RACES[run.__name__] = (run, f"{run.__name__}\t{kind}\t{link}\t{delayed}")
        return run

    return listed


def late():
    """With --delay, the operation that comes next on the current stream is late."""
    if delay:
        torch.cuda._sleep(int(delay * CYCLES_OF_A_MILLISECOND))


def fresh():
    """A value that no memory of this process has."""
    return next(values)


def full(value=0):
    return torch.full((COUNT,), value, dtype=torch.int32, device="cuda")


def pinned(value=0):
    return torch.full((COUNT,), value, dtype=torch.int32).pin_memory()


def current():
    return torch.cuda.current_stream()


def holds(tensor, value):
    """Whether all elements are `value`: on the device once that is idle, in host memory now."""
    if tensor.is_cuda:
        torch.cuda.synchronize()
    is_right = bool((tensor == value).all())
    torch.cuda.synchronize()
    return is_right


@race("L", "meta-pytorch/torchrec#4231", "the copy to the host")
def stashed_without_record_stream():
    """A tensor is dropped while a side stream copies it to the host; its block is the next tensor's."""
    side, value, host = torch.cuda.Stream(), fresh(), pinned()
    x = full(value)
    side.wait_stream(current())
    with torch.cuda.stream(side):
        late()
        host.copy_(x, non_blocking=True)
    if right:
        x.record_stream(side)
    del x
    y = full(fresh())
    side.synchronize()
    return holds(host, value)


@race("L", "deepspeedai/DeepSpeed#7965", "the kernel that reads")
def reduced_on_side_stream():
    """A tensor of the reduction stream is dropped while the default stream reads it."""
    side, value, out = torch.cuda.Stream(), fresh(), full()
    with torch.cuda.stream(side):
        reduced = full(value)
    current().wait_stream(side)
    late()
    torch.add(reduced, 0, out=out)
    if right:
        reduced.record_stream(current())
    del reduced
    with torch.cuda.stream(side):
        other = full(fresh())
    return holds(out, value)


@race("L", "sgl-project/sglang#34076", "the kernel that reads the indices")
def indices_dropped():
    """Indices of the schedule's stream are dropped while the forward stream gathers through them."""
    forward, value, out = torch.cuda.Stream(), fresh(), full()
    cache = torch.tensor([0, value, 0], dtype=torch.int32, device="cuda")
    indices = full(1)
    forward.wait_stream(current())
    with torch.cuda.stream(forward):
        late()
        torch.index_select(cache, 0, indices, out=out)
    if right:
        indices.record_stream(forward)
    del indices
    other = full(2)
    return holds(out, value)


@race("K", "huggingface/trl#7195", "the kernel that clones")
def clone_after_wait():
    """The side stream waits for the current one before that makes the clone which it reads."""
    side, value, out = torch.cuda.Stream(), fresh(), full()
    saved = full(value)
    torch.cuda.synchronize()
    if not right:
        side.wait_stream(current())
    late()
    clone = saved.clone()
    if right:
        side.wait_stream(current())
    with torch.cuda.stream(side):
        out.copy_(clone)
    return holds(out, value)


@race("K", "NVIDIA/Megatron-LM#2652", "the kernel that initialises")
def side_stream_not_joined():
    """Weights are made on a side stream that nobody waits for."""
    side, value, out = torch.cuda.Stream(), fresh(), full()
    side.wait_stream(current())
    with torch.cuda.stream(side):
        late()
        weights = full(value)
    if right:
        current().wait_stream(side)
    torch.add(weights, 0, out=out)
    return holds(out, value)


@race("K", "deepspeedai/DeepSpeed#7898", "the kernel that makes the gradients")
def default_stream_awaited():
    """The reduction waits for the default stream; the gradients come from another."""
    backward, reduce, value = torch.cuda.Stream(), torch.cuda.Stream(), fresh()
    gradients, bucket = full(), full()
    torch.cuda.synchronize()
    with torch.cuda.stream(backward):
        late()
        gradients.fill_(value)
    reduce.wait_stream(backward if right else torch.cuda.default_stream())
    with torch.cuda.stream(reduce):
        bucket.copy_(gradients)
    return holds(bucket, value)


@race("K", "deepseek-ai/DeepEP#589", "the fill of the output")
def output_filled_late():
    """An output is filled on the current stream, and written on the stream of communication."""
    comm, value = torch.cuda.Stream(), fresh()
    received, out = full(value), full()
    torch.cuda.synchronize()
    late()
    out.fill_(-1)
    if right:
        comm.wait_stream(current())
    with torch.cuda.stream(comm):
        out.copy_(received)
    return holds(out, value)


@race("H", "vllm-project/vllm#36013", "the copy to the host")
def read_before_copied():
    """The host reads the target of a non-blocking copy."""
    value, host = fresh(), pinned()
    counts = full(value)
    late()
    host.copy_(counts, non_blocking=True)
    if right:
        current().synchronize()
    return holds(host, value)


@race("H", "vllm-project/vllm#29288", "the first step's copy")
def staging_reused():
    """The host fills pinned memory for the next step while this step's copy reads it."""
    first, second, staging, steps = fresh(), fresh(), pinned(), [full(), full()]
    staging.fill_(first)
    late()
    steps[0].copy_(staging, non_blocking=True)
    if right:
        current().synchronize()
    staging.fill_(second)
    steps[1].copy_(staging, non_blocking=True)
    return holds(steps[0], first)


def captured(work):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        work()
    return graph


@race("G", "vllm-project/vllm#44868", "the copy of the input")
def replay_before_input():
    """A graph is replayed before the copy into its input has come."""
    side, value, static, out = torch.cuda.Stream(), fresh(), full(), full()
    host = pinned(value)
    graph = captured(lambda: torch.add(static, 0, out=out))
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        late()
        static.copy_(host, non_blocking=True)
    if right:
        current().wait_stream(side)
    graph.replay()
    return holds(out, value)


@race("G", "pytorch/pytorch#174649", "-")
def graph_input_dropped():
    """A tensor that a graph reads is dropped after the capture; its block is the next tensor's, whatever is delayed."""
    value, out = fresh(), full()
    x = full(value)
    graph = captured(lambda: torch.add(x, 0, out=out))
    if not right:
        del x
    others = full(fresh())
    graph.replay()
    return holds(out, value)


def main():
    global right, delay
    if sys.argv[1:] == ["list"]:
        print(*(line for _, line in RACES.values()), sep="\n")
        return
    words = argparse.ArgumentParser()
    words.add_argument("name", choices=RACES)
    words.add_argument("variant", choices=["wrong", "right"])
    words.add_argument("--delay", type=float, default=0.0, metavar="MS")
    words.add_argument("--rounds", type=int, default=1)
    given = words.parse_args()
    run, _ = RACES[given.name]
    # Kernels are loaded, and blocks are there, before the first round that counts.
    right = True
    torch.cuda._sleep(1)
    run()
    right, delay = given.variant == "right", given.delay
    failed = 0
    for _ in range(given.rounds):
        failed += not run()
        torch.cuda.synchronize()
    print(f"{failed} of {given.rounds} wrong")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
