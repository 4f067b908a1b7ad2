"""Trains a transformer on batches whose lengths vary; says what a step takes in the least turn, and what is reserved.

train.py           the training
train.py captured  a captured graph that is replayed beside allocations, and an all-reduce by NCCL
"""

import os
import sys
import time

import torch
from torch import nn

WIDTH, LAYERS, STEPS, TURNS = 1024, 8, 30, 6


def training():
    torch.manual_seed(1)
    layer = nn.TransformerEncoderLayer(WIDTH, 16, 4 * WIDTH, dropout=0.0, batch_first=True)
    model = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False).cuda().bfloat16()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    generator, side = torch.Generator("cpu").manual_seed(2), torch.cuda.Stream()
    lengths = [int(torch.randint(64, 768, (), generator=generator)) for _ in range(STEPS)]
    turns = []
    for _ in range(TURNS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for length in lengths:
            with torch.cuda.stream(side):
                batch = torch.randn(8, length, WIDTH, device="cuda", dtype=torch.bfloat16)
            torch.cuda.current_stream().wait_stream(side)
            batch.record_stream(torch.cuda.current_stream())
            loss = (model(batch) - batch).float().pow(2).mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            del batch
        torch.cuda.synchronize()
        turns.append((time.perf_counter() - start) / STEPS * 1e3)
    taken = min(turns[1:])
    free, total = torch.cuda.mem_get_info()
    print(f"{taken:.3f} ms a step (first turn {turns[0]:.3f}), loss {loss.item():.6f}, {(total - free) / 2**20:.0f} MiB of the device in use")


def captured():
    torch.manual_seed(1)
    model, batch = nn.Linear(WIDTH, WIDTH).cuda(), torch.randn(64, WIDTH, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            model(batch)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = model(batch).relu()
    wrong = 0
    for step in range(50):
        batch.copy_(torch.randn(64, WIDTH, device="cuda"))
        graph.replay()
        others = [torch.full((1 << 18,), float(step), device="cuda") for _ in range(8)]
        wrong += int(not torch.allclose(output, model(batch).relu(), atol=1e-4))
        wrong += int(any(float(it.sum()) != step * 2**18 for it in others))
    print(f"captured: {wrong} wrong of 50")
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29511", RANK="0", WORLD_SIZE="1")
    torch.distributed.init_process_group("nccl")
    numbers = torch.ones(1 << 20, device="cuda")
    torch.distributed.all_reduce(numbers)
    print(f"NCCL: the sum is {float(numbers.sum()):.0f}")
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    captured() if sys.argv[1:] == ["captured"] else training()
