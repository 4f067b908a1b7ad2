"""PyTorch on Millpond's memory, on a machine with a GPU. Without a GPU the tests are skipped.

`python3 -m unittest -v python/tests/test_torch_cuda.py`. PyTorch's allocator is changed for the whole process, so run
this file by itself. A use that PyTorch then refuses runs in a process of its own.
"""

import importlib.util
import os
import pathlib
import subprocess
import sys
import threading
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

HAS_CUDA = False
if importlib.util.find_spec("torch"):
    import torch

    HAS_CUDA = torch.cuda.is_available()

import millpond  # noqa: E402
import millpond.torch  # noqa: E402

MIB = 1 << 20


def setUpModule():
    if not HAS_CUDA:
        raise unittest.SkipTest("PyTorch with a CUDA device is not here")
    millpond.torch.enable()


def busy(milliseconds=50):
    """Keeps the current stream busy."""
    torch.cuda._sleep(int(milliseconds * 1_500_000))


class Tensors(unittest.TestCase):
    def test_memory_is_ours_and_comes_back(self):
        before = millpond.statistics().used
        x = torch.ones(MIB, device="cuda")
        self.assertGreaterEqual(millpond.statistics().used, before + 4 * MIB)
        self.assertEqual(x.sum().item(), MIB)
        del x
        self.assertEqual(millpond.statistics().used, before)

    def test_results_are_right_while_memory_is_used_again(self):
        torch.manual_seed(0)
        x = torch.randn(512, 512, device="cuda", dtype=torch.float64)
        expected = x.cpu()
        for _ in range(50):
            x = torch.tanh(x @ x.T / 512)
            expected = torch.tanh(expected @ expected.T / 512)
        torch.testing.assert_close(x.cpu(), expected)

    def test_too_much_is_an_exception(self):
        with self.assertRaisesRegex(RuntimeError, "out of memory"):
            torch.empty(1 << 45, device="cuda", dtype=torch.uint8)
        self.assertEqual(torch.ones(1, device="cuda").item(), 1)

    def test_empty_cache_gives_memory_back(self):
        x = torch.empty(256 * MIB, device="cuda", dtype=torch.uint8)
        del x
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.assertLess(millpond.statistics().reserved, millpond.statistics().used + 64 * MIB)


class Streams(unittest.TestCase):
    def test_record_stream_holds_memory_back(self):
        side = torch.cuda.Stream()
        for _ in range(20):
            x = torch.full((4 * MIB,), 1.0, device="cuda")
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                busy(10)
                total = x.sum()
            x.record_stream(side)
            del x
            torch.full((4 * MIB,), 2.0, device="cuda")
            side.synchronize()
            self.assertEqual(total.item(), 4 * MIB)

    def test_several_streams_and_threads(self):
        failed = []

        def work(number):
            stream = torch.cuda.Stream()
            with torch.cuda.stream(stream):
                for count in range(200):
                    size = 1000 + 977 * ((number * 31 + count) % 64)
                    x = torch.full((size,), float(number), device="cuda")
                    y = x * 2
                    del x
                    if y.sum().item() != 2.0 * number * size:
                        failed.append((number, count))

        threads = [threading.Thread(target=work, args=(i + 1,)) for i in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual(failed, [])


class Graphs(unittest.TestCase):
    def capture(self, **pool):
        static = torch.zeros(MIB, device="cuda")
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, **pool):
            a = static * 2
            b = a + 1
            del a
            c = (b * b).sum()
        return static, graph, c

    def test_replays_find_their_memory(self):
        static, graph, result = self.capture()
        for value in range(5):
            # Memory that is allocated and freed between replays must not be the graph's.
            junk = [torch.full((MIB,), -1.0, device="cuda") for _ in range(8)]
            static.fill_(float(value))
            graph.replay()
            del junk
            torch.cuda.empty_cache()
            self.assertEqual(result.item(), MIB * (2 * value + 1) ** 2)

    def test_graphs_share_a_pool(self):
        pool = torch.cuda.graph_pool_handle()
        first, second = self.capture(pool=pool), self.capture(pool=pool)
        for value in range(3):
            for static, graph, result in (first, second):
                static.fill_(float(value))
                graph.replay()
                self.assertEqual(result.item(), MIB * (2 * value + 1) ** 2)

    def test_a_graph_that_is_gone_gives_its_memory_back(self):
        before = millpond.statistics().used
        captured = self.capture()
        self.assertGreater(millpond.statistics().used, before)
        del captured
        torch.cuda.synchronize()
        self.assertEqual(millpond.statistics().used, before)

    def test_training_under_a_graph(self):
        def train(graphed):
            torch.manual_seed(0)
            model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 1)).cuda()
            optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
            x, y = torch.randn(128, 64, device="cuda"), torch.randn(128, 1, device="cuda")

            def step():
                optimizer.zero_grad(set_to_none=True)
                loss = torch.nn.functional.mse_loss(model(x), y)
                loss.backward()
                optimizer.step()
                return loss

            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):
                    step()
            torch.cuda.current_stream().wait_stream(side)
            if not graphed:
                return [step().item() for _ in range(10)]
            graph = torch.cuda.CUDAGraph()
            optimizer.zero_grad(set_to_none=True)
            with torch.cuda.graph(graph):
                loss = step()
            return [(graph.replay(), loss.item())[1] for _ in range(10)]

        torch.testing.assert_close(train(True), train(False))


#: A process whose allocator is PyTorch's own, with a pool of Millpond's.
POOL = """
import torch
import millpond, millpond.torch
pool = millpond.torch.mem_pool()
outside = torch.ones(1 << 20, device="cuda")
before = millpond.statistics().used
with torch.cuda.use_mem_pool(pool):
    inside = torch.ones(4 << 20, device="cuda")
assert millpond.statistics().used >= before + (16 << 20), millpond.statistics()
assert inside.sum().item() == 4 << 20 and outside.sum().item() == 1 << 20
print("served")
"""


class Pools(unittest.TestCase):
    def test_a_mem_pool(self):
        path = os.pathsep.join([str(HERE.parent), *filter(None, [os.environ.get("PYTHONPATH")])])
        environment = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run([sys.executable, "-c", POOL], env=environment, capture_output=True, text=True)
        self.assertEqual((done.returncode, done.stdout.strip()), (0, "served"), done.stderr)

    def test_beside_a_changed_allocator_it_is_refused(self):
        with self.assertRaisesRegex(RuntimeError, "use one of the two in a process"):
            millpond.torch.mem_pool()


if __name__ == "__main__":
    unittest.main()
