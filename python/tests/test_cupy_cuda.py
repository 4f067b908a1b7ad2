"""CuPy on Millpond's memory, on a machine with a GPU. Without a GPU the tests are skipped.

`python3 -m unittest -v python/tests/test_cupy_cuda.py`
"""

import importlib.util
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import millpond  # noqa: E402
import millpond.cupy  # noqa: E402

MIB = 1 << 20


def setUpModule():
    global cupy
    if not importlib.util.find_spec("cupy"):
        raise unittest.SkipTest("CuPy is not here")
    import cupy

    if not cupy.cuda.is_available():
        raise unittest.SkipTest("a CUDA device is not here")
    millpond.cupy.enable()


class Arrays(unittest.TestCase):
    def test_memory_is_ours_and_comes_back(self):
        before = millpond.statistics().used
        x = cupy.ones(MIB, dtype=cupy.float32)
        self.assertEqual(millpond.statistics().used, before + 4 * MIB)
        self.assertEqual(float(x.sum()), MIB)
        del x
        self.assertEqual(millpond.statistics().used, before)

    def test_results_are_right_while_memory_is_used_again(self):
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            for value in range(200):
                length = 1000 + 97 * value
                x = cupy.full(length, value, dtype=cupy.int64)
                y = x * 2
                del x
                self.assertEqual(int(y.sum()), 2 * value * length)

    def test_libraries_work_on_it(self):
        x = cupy.random.RandomState(0).rand(256, 256)
        self.assertTrue(cupy.allclose(x @ cupy.linalg.inv(x), cupy.eye(256), atol=1e-6))

    def test_too_much_is_an_exception(self):
        with self.assertRaisesRegex(MemoryError, "out of memory"):
            cupy.empty(1 << 50, dtype=cupy.uint8)
        self.assertEqual(int(cupy.ones(1, dtype=cupy.int64).sum()), 1)


if __name__ == "__main__":
    unittest.main()
