"""Trains ResNet-50 on random images with varying batches and sizes, in plain PyTorch.

    python bench/train_resnet.py --allocator millpond
    torchrun --nproc-per-node 2 bench/train_resnet.py --allocator millpond --distributed
"""

import os

import common

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
OPTIONS = common.arguments(__doc__.splitlines()[0])
torch = common.torch_with(OPTIONS.allocator)
nn = torch.nn

CLASSES = 1000


def convolve(inside, outside, size, stride=1):
    layer = nn.Conv2d(inside, outside, size, stride, padding=size // 2, bias=False)
    return nn.Sequential(layer, nn.BatchNorm2d(outside))


class Bottleneck(nn.Module):
    def __init__(self, inside, width, stride):
        super().__init__()
        self.narrow, self.middle = convolve(inside, width, 1), convolve(width, width, 3, stride)
        self.widen = convolve(width, 4 * width, 1)
        same = stride == 1 and inside == 4 * width
        self.around = nn.Identity() if same else convolve(inside, 4 * width, 1, stride)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        y = self.relu(self.middle(self.relu(self.narrow(x))))
        return self.relu(self.widen(y) + self.around(x))


def resnet50():
    layers, inside = [convolve(3, 64, 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)], 64
    for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for at in range(count):
            layers.append(Bottleneck(inside, width, stride if at == 0 else 1))
            inside = 4 * width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, CLASSES))


def main():
    rank = common.begin(torch, OPTIONS)
    device = torch.device("cuda", rank)
    model = common.parallel(torch, resnet50().to(device), OPTIONS, rank)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    data = torch.Generator(device).manual_seed(OPTIONS.seed + rank)
    figures = common.Figures(torch, OPTIONS.allocator, rank)

    def step(batch, side):
        images = torch.randn(batch, 3, side, side, generator=data, device=device)
        labels = torch.randint(CLASSES, (batch,), generator=data, device=device)
        with torch.autocast("cuda", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    batches, sides = common.batches(OPTIONS.batch or 256), range(160, 289, 32)
    for is_warm, shape in common.passes(OPTIONS, batches, sides):
        figures.step(is_warm, lambda: step(*shape))
    figures.report("ResNet-50")
    common.end(torch, OPTIONS)


if __name__ == "__main__":
    main()
