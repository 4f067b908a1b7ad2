"""Small programs over libraries that were not written here, with random weights: programs.py NAME.

Each prints the same lines at every run, and last `step MS`, the least time of a step.
"""

import os
import sys
import time

PROGRAMS = {}


def program(function):
    PROGRAMS[function.__name__] = function
    return function


def steps(count, step, warm=2):
    """Runs steps, and prints the last one's value in three digits; a step is over when its value is read."""
    least, value = 1e9, 0.0
    for number in range(count):
        start = time.perf_counter()
        value = float(step(number))
        if number >= warm:
            least = min(least, time.perf_counter() - start)
    print(f"{sys.argv[1]}: {value:.3g}")
    print(f"step {least * 1e3:.2f}")


def torch_seeded():
    import torch

    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    return torch


def train(model, loss, rate=1e-3):
    import torch

    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)

    def step(number):
        optimizer.zero_grad(set_to_none=True)
        value = loss(number)
        value.backward()
        optimizer.step()
        return value.detach()

    return step


@program
def resnet():
    """torchvision's ResNet-50, mixed precision, batches copied from pinned memory on a side stream."""
    torch = torch_seeded()
    import torchvision

    model = torchvision.models.resnet50(weights=None).cuda()
    side = torch.cuda.Stream()
    batches = [torch.randn(16, 3, 160, 160, generator=torch.Generator().manual_seed(n)).pin_memory() for n in range(3)]

    def loss(number):
        with torch.cuda.stream(side):
            batch = batches[number % 3].to("cuda", non_blocking=True)
        torch.cuda.current_stream().wait_stream(side)
        batch.record_stream(torch.cuda.current_stream())
        with torch.autocast("cuda", torch.bfloat16):
            return model(batch).float().square().mean()

    steps(12, train(model, loss, 1e-5))


@program
def vit_detection():
    """torchvision's ViT-B/16, then its Faster R-CNN, whose shapes depend on data."""
    torch = torch_seeded()
    import torchvision

    vit = torchvision.models.vit_b_16(weights=None).cuda().eval()
    boxes = torchvision.models.detection.fasterrcnn_resnet50_fpn(weights=None, weights_backbone=None).cuda().eval()
    image = torch.rand(4, 3, 224, 224, generator=torch.Generator().manual_seed(3)).cuda()

    def step(_):
        with torch.inference_mode():
            found = boxes(list(image))
            return vit(image).abs().mean() + 0 * sum(len(it["boxes"]) for it in found)

    steps(6, step)


def small_gpt2(transformers, attention="sdpa"):
    config = transformers.GPT2Config(n_layer=4, n_embd=256, n_head=4, vocab_size=1000, attn_implementation=attention)
    return transformers.GPT2LMHeadModel(config)


@program
def gpt2():
    """transformers' GPT-2: training with gradient checkpoints, then generation."""
    torch = torch_seeded()
    import transformers

    model = small_gpt2(transformers).cuda()
    model.gradient_checkpointing_enable()
    model.config.use_cache = False
    tokens = torch.randint(1000, (8, 256), generator=torch.Generator().manual_seed(4)).cuda()
    steps(10, train(model, lambda number: model(tokens[:, : 64 + 16 * number], labels=tokens[:, : 64 + 16 * number]).loss))
    model.eval()
    out = model.generate(tokens[:1, :8], max_new_tokens=24, do_sample=False, use_cache=True, pad_token_id=0)
    print(f"generated {out.shape[1]}")


@program
def llama():
    """transformers' Llama with a static cache, whose decoding is compiled to CUDA graphs."""
    torch = torch_seeded()
    import transformers

    config = transformers.LlamaConfig(
        hidden_size=256, intermediate_size=512, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2, vocab_size=1000
    )
    model = transformers.LlamaForCausalLM(config).cuda().bfloat16().eval()
    tokens = torch.arange(1, 9).reshape(1, 8).cuda()

    def step(_):
        out = model.generate(tokens, max_new_tokens=16, do_sample=False, cache_implementation="static", pad_token_id=0)
        return out.shape[1]

    steps(4, step)


@program
def compiled():
    """torch.compile, its kernels by Triton, a training."""
    torch = torch_seeded()
    model = torch.nn.Sequential(*[layer for _ in range(3) for layer in (torch.nn.Linear(256, 256), torch.nn.GELU())]).cuda()
    fast, batch = torch.compile(model), torch.randn(64, 256, device="cuda")
    steps(12, train(model, lambda _: fast(batch).square().mean()))


@program
def reduce_overhead():
    """torch.compile with CUDA graphs (mode reduce-overhead)."""
    torch = torch_seeded()
    model = torch.nn.Sequential(*[layer for _ in range(3) for layer in (torch.nn.Linear(256, 256), torch.nn.GELU())]).cuda()
    fast, batch = torch.compile(model, mode="reduce-overhead"), torch.randn(64, 256, device="cuda")
    steps(12, train(model, lambda _: fast(batch).square().mean()))


@program
def captured():
    """torch.cuda.graphs: a whole training step captured, and make_graphed_callables."""
    torch = torch_seeded()
    model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
    batch, side, graph = torch.randn(64, 256, device="cuda"), torch.cuda.Stream(), torch.cuda.CUDAGraph()

    def whole():
        optimizer.zero_grad(set_to_none=True)
        value = torch.cat([model(batch), batch], 1).square().mean()
        value.backward()
        optimizer.step()
        return value

    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            whole()
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(graph):
        value = whole()

    def step(number):
        batch.copy_(torch.full((64, 256), 0.01 * number, device="cuda"))
        graph.replay()
        return value.detach()

    steps(20, step)
    callee = torch.cuda.make_graphed_callables(torch.nn.Linear(64, 64).cuda(), (torch.ones(8, 64, device="cuda"),))
    print(f"callable {float(callee(torch.zeros(8, 64, device='cuda')).sum()):.3g}")


@program
def sparse_threads():
    """Two threads with streams of their own multiply sparse matrices: blocks of 4 and 16 MiB come and go."""
    torch = torch_seeded()
    import threading

    size, rounds = 1024, int(os.environ.get("ROUNDS", "60"))
    row = torch.arange(size, device="cuda")
    weight = torch.sparse_coo_tensor(torch.cartesian_prod(row, row).t(), torch.ones(size * size, device="cuda"))
    values, took = [None, None], [0.0, 0.0]

    def work(number):
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        start = time.perf_counter()
        with torch.cuda.stream(stream):
            x = torch.ones((size, size), device="cuda")
            for _ in range(rounds):
                x = weight.mm(x) / size
            stream.synchronize()
            values[number] = float(x.sum())
        took[number] = (time.perf_counter() - start) / rounds

    work(0)
    threads = [threading.Thread(target=work, args=(n,)) for n in range(2)]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    print(f"sparse_threads: {values[0]:.7g} {values[1]:.7g}")
    print(f"step {max(took) * 1e3:.2f}")


@program
def loader():
    """A DataLoader with workers and pinned memory, non-blocking copies, RNN and attention, AMP with a scaler."""
    torch = torch_seeded()
    data = torch.utils.data.TensorDataset(torch.randn(256, 32, 64, generator=torch.Generator().manual_seed(5)))
    batches = torch.utils.data.DataLoader(data, 32, num_workers=2, pin_memory=True)
    lstm = torch.nn.LSTM(64, 128, batch_first=True, bidirectional=True).cuda()
    attention = torch.nn.MultiheadAttention(256, 4, batch_first=True).cuda()
    optimizer = torch.optim.SGD([*lstm.parameters(), *attention.parameters()], lr=0.01)
    scaler = torch.amp.GradScaler("cuda")

    def step(_):
        total = 0.0
        for (batch,) in batches:
            with torch.autocast("cuda", torch.float16):
                hidden = lstm(batch.to("cuda", non_blocking=True))[0]
                value = attention(hidden, hidden, hidden)[0].float().square().mean()
            optimizer.zero_grad(set_to_none=True)
            scaler.scale(value).backward()
            scaler.step(optimizer)
            scaler.update()
            total += value.detach()
        return total

    steps(3, step, 1)


@program
def lightning():
    torch = torch_seeded()
    import logging
    import warnings

    import pytorch_lightning

    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore")

    class Module(pytorch_lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = torch.nn.Linear(64, 64)

        def training_step(self, batch, _):
            return self.net(batch[0]).square().mean()

        def configure_optimizers(self):
            return torch.optim.Adam(self.parameters(), lr=1e-3)

    data = torch.utils.data.TensorDataset(torch.randn(512, 64, generator=torch.Generator().manual_seed(6)))
    module = Module()

    def step(_):
        trainer = pytorch_lightning.Trainer(
            max_epochs=1, accelerator="gpu", devices=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
            enable_model_summary=False, precision="bf16-mixed",
        )
        trainer.fit(module, torch.utils.data.DataLoader(data, 64))
        return module.net.weight.detach().abs().sum()

    steps(3, step, 1)


@program
def geometric():
    """PyG: a graph network on a random graph."""
    torch = torch_seeded()
    from torch_geometric.nn import GATConv, SAGEConv

    edges = torch.randint(2000, (2, 20000), generator=torch.Generator().manual_seed(7)).cuda()
    nodes = torch.randn(2000, 64, generator=torch.Generator().manual_seed(8)).cuda()
    one, two = SAGEConv(64, 64).cuda(), GATConv(64, 16, heads=4).cuda()
    both = torch.nn.ModuleList([one, two])
    steps(10, train(both, lambda _: two(one(nodes, edges).relu(), edges).square().mean()))


@program
def accelerated():
    """accelerate: gradient accumulation, clipping, mixed precision."""
    torch = torch_seeded()
    import accelerate
    import transformers

    helper = accelerate.Accelerator(mixed_precision="bf16", gradient_accumulation_steps=2)
    model = small_gpt2(transformers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model, optimizer = helper.prepare(model, optimizer)
    tokens = torch.randint(1000, (4, 128), generator=torch.Generator().manual_seed(9)).to(helper.device)

    def step(_):
        with helper.accumulate(model):
            value = model(tokens, labels=tokens).loss
            helper.backward(value)
            helper.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        return value.detach()

    steps(8, step)


@program
def gaussian():
    """gpytorch: an exact Gaussian process, Cholesky factors and solves."""
    torch = torch_seeded()
    import gpytorch

    x = torch.linspace(0, 1, 400, device="cuda")
    y = torch.sin(x * 6)

    class Model(gpytorch.models.ExactGP):
        def __init__(self, likelihood):
            super().__init__(x, y, likelihood)
            self.mean = gpytorch.means.ConstantMean()
            self.kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel())

        def forward(self, at):
            return gpytorch.distributions.MultivariateNormal(self.mean(at), self.kernel(at))

    likelihood = gpytorch.likelihoods.GaussianLikelihood().cuda()
    model = Model(likelihood).cuda()
    aim = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    steps(8, train(model, lambda _: -aim(model(x), y), 0.1))


@program
def linalg():
    """cuSOLVER, cuFFT, sorting, indexing and unique values: many temporaries and values read by the host."""
    torch = torch_seeded()
    a = torch.randn(300, 300, generator=torch.Generator().manual_seed(10)).cuda()

    def step(number):
        values = torch.linalg.eigvalsh(a @ a.t())
        spectrum = torch.fft.irfft2(torch.fft.rfft2(a))
        chosen = a[a > 0.5].sort().values.unique()
        return values.sum() + spectrum.abs().sum() + len(chosen) + torch.linalg.svdvals(a[: 100 + number]).sum()

    steps(8, step)


@program
def triton_kernels():
    """Triton's own kernels on two streams."""
    torch = torch_seeded()
    import triton
    import triton.language as tl

    @triton.jit
    def add(x, y, out, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(x + at, at < n) + tl.load(y + at, at < n), at < n)

    side = torch.cuda.Stream()

    def step(number):
        n = 10000 + number
        x, out = torch.full((n,), 1.0, device="cuda"), torch.empty(n, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            add[(triton.cdiv(n, 1024),)](x, x, out, n, BLOCK=1024)
        torch.cuda.current_stream().wait_stream(side)
        return out.sum()

    steps(20, step)


@program
def cupy_arrays():
    """CuPy's asynchronous pool: ufuncs, sorting, FFT, linear algebra, two streams."""
    import cupy

    cupy.cuda.set_allocator(cupy.cuda.MemoryAsyncPool().malloc)
    # Memory of a capture that outlives it is live only once: such a graph runs once.
    cupy_work(cupy, False)


@program
def cupy_pool():
    """The same with CuPy's own pool, over cudaMalloc, and a captured graph."""
    import cupy

    cupy_work(cupy)


@program
def cupy_millpond():
    """The same with Millpond's allocator for CuPy, and a captured graph."""
    import cupy
    import millpond.cupy

    millpond.cupy.enable()
    cupy_work(cupy)


def cupy_work(cupy, captures=True):
    import numpy

    source = cupy.asarray(numpy.random.default_rng(1).random((400, 400)))
    side = cupy.cuda.Stream(non_blocking=True)

    def step(number):
        a = source + number
        done = cupy.cuda.get_current_stream().record()
        side.wait_event(done)
        with side:
            b = cupy.fft.ifft2(cupy.fft.fft2(a)).real
        side.synchronize()
        # Read before `b` is freed, which is on `side`.
        return float(cupy.linalg.norm(b) + cupy.sort(a.ravel())[::1000].sum() + cupy.linalg.solve(source, a[:, :4]).sum())

    steps(8, step)
    if not captures:
        return
    with side:
        side.begin_capture()
        out = cupy.sqrt(3 * cupy.sin(source)) + 1
        graph = side.end_capture()
        for _ in range(3):
            graph.launch()
    side.synchronize()
    print(f"captured {float(cupy.nansum(out)):.6g}")


@program
def jax_training():
    """JAX: a jitted training step, over the asynchronous allocator."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_ALLOCATOR", "cuda_async")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    import jax
    import jax.numpy as jnp

    keys = jax.random.split(jax.random.key(1), 4)
    weights = [jax.random.normal(key, (256, 256)) * 0.05 for key in keys[:3]]
    batch = jax.random.normal(keys[3], (64, 256))

    def loss(weights, batch):
        for weight in weights:
            batch = jax.nn.gelu(batch @ weight)
        return (batch**2).mean()

    @jax.jit
    def update(weights, batch):
        value, slopes = jax.value_and_grad(loss)(weights, batch)
        return [w - 0.1 * s for w, s in zip(weights, slopes)], value

    state = [weights]

    def step(number):
        state[0], value = update(state[0], batch[: 32 + number % 3])
        return value

    steps(12, step, 5)


@program
def torch_millpond():
    """GPT-2's training with Millpond's allocator for PyTorch."""
    import millpond.torch

    millpond.torch.enable()
    gpt2()


if __name__ == "__main__":
    PROGRAMS[sys.argv[1]]()
