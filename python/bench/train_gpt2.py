"""Trains GPT-2 (124 M parameters) on random tokens with varying batches and lengths, in plain PyTorch.

    python bench/train_gpt2.py --allocator millpond
    torchrun --nproc-per-node 2 bench/train_gpt2.py --allocator millpond --distributed

The same seed gives the same shapes and data for every allocator, so losses can be compared.
"""

import os

import common

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
OPTIONS = common.arguments(__doc__.splitlines()[0])
torch = common.torch_with(OPTIONS.allocator)
nn = torch.nn

VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH = 50304, 768, 12, 12, 1024


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        batch, length, _ = x.shape
        parts = self.attend(self.before(x)).view(batch, length, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        attended = nn.functional.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.project(attended.transpose(1, 2).reshape(batch, length, WIDTH))
        return x + self.narrow(nn.functional.gelu(self.widen(self.between(x))))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.last = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens, targets):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.last(self.blocks(self.tokens(tokens) + self.places(places)))
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


def main():
    rank = common.begin(torch, OPTIONS)
    device = torch.device("cuda", rank)
    model = common.parallel(torch, Model().to(device), OPTIONS, rank)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
    data = torch.Generator(device).manual_seed(OPTIONS.seed + rank)
    figures = common.Figures(torch, OPTIONS.allocator, rank)

    def step(batch, length):
        tokens = torch.randint(VOCABULARY, (batch, length + 1), generator=data, device=device)
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(tokens[:, :-1], tokens[:, 1:])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.detach()

    # PyTorch's default for this GPU compiles a plan for every shape, and again once its cache is full.
    torch.backends.cuda.enable_cudnn_sdp(False)
    batches, lengths = common.batches(OPTIONS.batch or 64), range(128, LENGTH + 1, 128)
    for is_warm, shape in common.passes(OPTIONS, batches, lengths):
        figures.step(is_warm, lambda: step(*shape))
    figures.report("GPT-2")
    common.end(torch, OPTIONS)


if __name__ == "__main__":
    main()
