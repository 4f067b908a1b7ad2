"""The code that the training scripts share: the allocator by name, and figures that mean the same for each.

Peak reserved is the most physical memory; peak allocated is the most memory that tensors requested. Both are measured
from a reset of the peaks after the warm-up.
"""

import argparse
import itertools
import os
import pathlib
import random
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

ALLOCATORS = ("default", "expandable", "millpond")


def arguments(description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--allocator", choices=ALLOCATORS, default="default")
    parser.add_argument("--passes", type=int, default=2, help="how often every shape comes, after one pass to warm up")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch", type=int, default=None, help="largest batch, a multiple of 8")
    parser.add_argument("--distributed", action="store_true", help="one process a GPU, under torchrun, with NCCL")
    return parser.parse_args()


def torch_with(allocator):
    """Returns PyTorch with this allocator. Call this before the first CUDA tensor."""
    if allocator == "expandable":
        os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
        os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"
    import torch

    if allocator == "millpond":
        import millpond.torch

        millpond.torch.enable()
    return torch


def batches(largest):
    """Returns eight batch sizes in equal steps, up to the largest."""
    return [largest * eighth // 8 for eighth in range(1, 9)]


def passes(options, *dimensions):
    """Yields all combinations of the dimensions, in a new random order for each pass: one to warm up, then `--passes`.

    Libraries choose and compile kernels for a shape when it first occurs. That takes longer than the step itself and is
    unrelated to memory, so no shape is new after the warm-up.
    """
    shapes, order = list(itertools.product(*dimensions)), random.Random(options.seed)
    for number in range(1 + options.passes):
        order.shuffle(shapes)
        for shape in shapes:
            yield number > 0, shape


class Figures:
    """Losses, step times and peaks of a run."""

    def __init__(self, torch, allocator, device):
        self.torch, self.allocator, self.device = torch, allocator, device
        self.losses, self.times, self.issued = [], [], []
        self.is_warm = False

    def reset(self):
        self.torch.cuda.synchronize()
        self.times.clear()
        self.issued.clear()
        if self.allocator == "millpond":
            import millpond

            millpond.reset_peaks(self.device)
        else:
            self.torch.cuda.reset_peak_memory_stats()

    def step(self, is_warm, run):
        if is_warm and not self.is_warm:
            self.reset()
        self.is_warm = is_warm
        self.torch.cuda.synchronize()
        begin = time.perf_counter()
        loss = run()
        self.issued.append(time.perf_counter() - begin)
        self.torch.cuda.synchronize()
        self.times.append(time.perf_counter() - begin)
        self.losses.append(loss.item())

    def peaks(self):
        if self.allocator == "millpond":
            import millpond

            figures = millpond.statistics(self.device)
            return figures.reserved_high, figures.used_high
        stats = self.torch.cuda.memory_stats()
        return stats["reserved_bytes.all.peak"], stats["requested_bytes.all.peak"]

    def report(self, what):
        reserved, allocated = self.peaks()
        losses = self.losses
        print(f"{what}: allocator {self.allocator}, {len(self.times)} steps, device {self.device}")
        print(f"  losses {losses[0]:.6f} {losses[len(losses) // 2]:.6f} {losses[-1]:.6f} sum {sum(losses):.6f}")
        ordered = sorted(self.times)
        middle, slow = statistics.median(ordered), ordered[int(len(ordered) * 0.9)]
        print(f"  step median {middle * 1e3:.3f} ms, 90 % below {slow * 1e3:.3f} ms, all {sum(ordered):.3f} s")
        print(f"  issued by the host in {statistics.median(self.issued) * 1e3:.3f} ms (median), all {sum(self.issued):.3f} s")
        if allocated == 0:
            print("  what is reserved and allocated this backend does not say")
            return
        ratio = reserved / allocated
        print(f"  peak reserved {reserved / 2**20:.1f} MiB, peak allocated {allocated / 2**20:.1f} MiB, ratio {ratio:.4f}")


def begin(torch, options):
    """Sets up the process, with --distributed as one of several. Returns the number of its GPU."""
    torch.manual_seed(options.seed)
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False
    rank = 0
    if options.distributed:
        rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(rank)
        torch.distributed.init_process_group("nccl")
    return rank


def parallel(torch, model, options, rank):
    """Returns the model. With several processes its gradients are summed over them."""
    if not options.distributed:
        return model
    return torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank])


def end(torch, options):
    if options.distributed:
        torch.distributed.destroy_process_group()
