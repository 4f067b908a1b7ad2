"""A training that makes its batches on a side stream and never waits for it: `millpond check -- python train.py`.
`train.py right` waits. Needs PyTorch and a GPU."""
import sys

import torch

is_right, side = sys.argv[1:] == ["right"], torch.cuda.Stream()


def load():
    with torch.cuda.stream(side):
        return torch.randn(1024, 1024, device="cuda")


def step(model, batch):
    if is_right:
        torch.cuda.current_stream().wait_stream(side)
    batch.record_stream(torch.cuda.current_stream())
    model(batch).square().mean().backward()


model = torch.nn.Sequential(torch.nn.Linear(1024, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 1024)).cuda()
for _ in range(10):
    step(model, load())
torch.cuda.synchronize()
print("done")
