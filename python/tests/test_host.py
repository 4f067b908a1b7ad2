"""Tests without a GPU or PyTorch: the package over host devices. `python3 -m unittest discover -s python/tests`."""

import ctypes
import importlib.util
import os
import pathlib
import pickle
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import types
import unittest
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import millpond  # noqa: E402
import millpond.cupy  # noqa: E402
import millpond.torch  # noqa: E402
from millpond._library import PoolKey, library  # noqa: E402

MIB = 1 << 20
#: True if the build requirements are installed, as they are in pip's build.
CAN_BUILD = all(importlib.util.find_spec(name) for name in ("setuptools", "wheel", "elftools"))


def setUpModule():
    millpond.use_host()


class Memory(unittest.TestCase):
    """Each test has a device of its own."""

    def test_a_block_comes_back(self):
        first = millpond.allocate(MIB, device=10)
        self.assertTrue(first)
        self.assertEqual(millpond.statistics(10).used, MIB)
        millpond.free(first, device=10)
        self.assertEqual(millpond.statistics(10).used, 0)
        self.assertEqual(millpond.statistics(10).used_high, MIB)
        self.assertEqual(millpond.allocate(MIB, device=10), first)
        millpond.free(first, device=10)
        millpond.empty_cache()
        self.assertEqual(millpond.statistics(10).reserved, 0)
        millpond.reset_peaks(10)
        self.assertEqual(millpond.statistics(10).used_high, 0)
        self.assertEqual(millpond.allocate(0, device=10), 0)

    def test_refusals_are_exceptions(self):
        with self.assertRaises(millpond.Error) as caught:
            millpond.free(12345, device=11)
        self.assertIn("not the start of a live allocation", str(caught.exception))
        with self.assertRaises(millpond.OutOfMemory) as caught:
            millpond.allocate(1 << 50, device=11)
        self.assertIsInstance(caught.exception, MemoryError)
        self.assertIn("out of memory", str(caught.exception))
        for nbytes in (1 << 63, (1 << 64) - 1, (1 << 64) + 512, 1 << 100):
            with self.assertRaises(millpond.OutOfMemory):
                millpond.allocate(nbytes, device=11)
        with self.assertRaises(ValueError):
            millpond.allocate(-1, device=11)
        for wrong in (1 << 32, -(1 << 33), 1 << 31):  # The lower bits of the first two are 0.
            for call in (millpond.allocate, millpond.free):
                with self.assertRaisesRegex(ValueError, f"device {wrong}"):
                    call(0, device=wrong)
            for call in (millpond.statistics, millpond.reset_peaks, lambda it: millpond.memory_picture(device=it)):
                with self.assertRaisesRegex(ValueError, f"device {wrong}"):
                    call(wrong)
        for wrong in (1 << 64, -1):
            with self.assertRaisesRegex(ValueError, f"stream {wrong}"):
                millpond.allocate(512, device=11, stream=wrong)
            with self.assertRaisesRegex(ValueError, f"address {wrong}"):
                millpond.free(wrong, device=11)
        with self.assertRaises(millpond.Error):
            millpond.statistics(1000)
        with self.assertRaises(millpond.Error):
            millpond.use_host(False)

    def test_a_recorded_stream_is_waited_for(self):
        block = millpond.allocate(MIB, device=12, stream=1)
        library().millpond_torch_record_stream(block, 2)
        millpond.free(block, device=12, stream=1)
        self.assertEqual(millpond.statistics(12).used, 0)
        library().millpond_torch_record_stream(block, 2)  # No longer Millpond's memory: ignored.

    def test_a_private_pool_keeps_its_memory(self):
        calls, key = library(), PoolKey(0, 3)
        calls.millpond_torch_begin_allocate_to_pool(13, key, None)
        inside = millpond.allocate(MIB, device=13)
        millpond.free(inside, device=13)
        calls.millpond_torch_end_allocate_to_pool(13, key)
        outside = millpond.allocate(MIB, device=13)
        self.assertNotEqual(inside, outside)
        self.assertGreaterEqual(millpond.statistics(13).used, 2 * MIB)
        calls.millpond_torch_release_pool(13, key)
        self.assertEqual(millpond.statistics(13).used, MIB)
        millpond.free(outside, device=13)

    def test_threads(self):
        failed = []

        def work(stream):
            try:
                for i in range(500):
                    block = millpond.allocate(512 << (i % 10), device=14, stream=stream)
                    millpond.free(block, device=14, stream=stream)
            except millpond.Error as error:
                failed.append(error)

        threads = [threading.Thread(target=work, args=(i + 1,)) for i in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        self.assertEqual(failed, [])
        self.assertEqual(millpond.statistics(14).used, 0)


class Picture(unittest.TestCase):
    def test_it_shows_what_is_live(self):
        blocks = [millpond.allocate(size, device=20) for size in (1000, MIB, 300)]
        millpond.free(blocks[1], device=20)
        picture = millpond.memory_picture(device=20)
        live = [one for pool in picture["pools"] for one in pool["live"]]
        self.assertEqual(sorted(one["requested"] for one in live), [300, 1000])
        self.assertEqual({one["address"] for one in live}, {blocks[0], blocks[2]})

    def test_it_is_written_as_json_and_as_a_snapshot(self):
        millpond.allocate(1000, device=21)
        gap = millpond.allocate(1000, device=21)
        millpond.allocate(2000, device=21)
        millpond.free(gap, device=21)
        with tempfile.TemporaryDirectory() as folder:
            picture = millpond.memory_picture(os.path.join(folder, "a.json"), device=21)
            millpond.memory_picture(os.path.join(folder, "a.pickle"), device=21)
            with open(os.path.join(folder, "a.json"), encoding="utf-8") as file:
                self.assertIn('"requested"', file.read())
            with open(os.path.join(folder, "a.pickle"), "rb") as file:
                snapshot = pickle.load(file)
        self.assertEqual(len(picture["pools"]), len(millpond.memory_picture(device=21)["pools"]))
        (segment,) = snapshot["segments"]
        self.assertEqual(segment["requested_size"], 3000)
        self.assertEqual(segment["total_size"], sum(block["size"] for block in segment["blocks"]))
        self.assertEqual(
            [block["state"] for block in segment["blocks"]], ["active_allocated", "inactive", "active_allocated"]
        )


class Torch(unittest.TestCase):
    def test_all_hooks_are_told(self):
        class Native:
            def __init__(self):
                self.told = {}

            def __getattr__(self, name):
                return lambda address: self.told.__setitem__(name, address)

        native = Native()
        millpond.torch.connect(native)
        self.assertEqual(set(native.told), set(millpond.torch._HOOKS))
        self.assertTrue(all(native.told.values()))
        self.assertEqual(len(set(native.told.values())), len(native.told))

    def test_a_pytorch_that_lacks_one_is_refused(self):
        with self.assertRaises(RuntimeError):
            millpond.torch.connect(object())

    def test_a_pool_after_all_is_enabled_is_refused_in_words(self):
        millpond.torch._enabled = True
        try:
            with self.assertRaisesRegex(RuntimeError, "use one of the two in a process"):
                millpond.torch.mem_pool()
        finally:
            millpond.torch._enabled = False

    @unittest.skipIf(importlib.util.find_spec("torch"), "PyTorch is installed")
    def test_a_missing_pytorch_is_said(self):
        for call in (millpond.torch.enable, millpond.torch.mem_pool):
            with self.assertRaisesRegex(ImportError, "millpond.torch needs PyTorch"):
                call()
        self.assertFalse(millpond.torch.is_enabled())

    @unittest.skipUnless(importlib.util.find_spec("torch"), "PyTorch is not installed")
    def test_the_allocator_is_made(self):
        self.assertIsNotNone(millpond.torch.allocator())


class Wheel(unittest.TestCase):
    @unittest.skipUnless(CAN_BUILD, "setuptools, wheel and pyelftools are not installed")
    @unittest.skipUnless(os.environ.get("MILLPOND_LIBRARY"), "MILLPOND_LIBRARY names no library to put into it")
    def test_it_carries_the_library_and_works_by_itself(self):
        with tempfile.TemporaryDirectory() as folder:
            source, wheels, place = (os.path.join(folder, name) for name in ("source", "wheels", "place"))
            shutil.copytree(HERE.parent, source, ignore=shutil.ignore_patterns("*.so", "build", "*.egg-info"))
            os.mkdir(wheels)
            build = f"import build_hook; print(build_hook.build_wheel({wheels!r}))"
            # Any file stands for the command.
            env = {**os.environ, "MILLPOND_COMMAND": os.environ["MILLPOND_LIBRARY"]}
            built = subprocess.run([sys.executable, "-c", build], cwd=source, env=env, capture_output=True, text=True)
            self.assertEqual(built.returncode, 0, built.stderr)
            self.assertFalse(os.path.exists(os.path.join(source, "millpond", "libmillpond.so")))
            (wheel,) = os.listdir(wheels)
            self.assertRegex(wheel, "^millpond-.*-py3-none-manylinux_2_[0-9]+_.*[.]whl$")
            with zipfile.ZipFile(os.path.join(wheels, wheel)) as archive:
                archive.extractall(place)
                infos, names = archive.infolist(), archive.namelist()
            for licence in ("LICENSE-MIT", "LICENSE-APACHE"):
                self.assertTrue(any(name.endswith(licence) for name in names), names)
            (command,) = [item for item in infos if item.filename.endswith(".data/scripts/millpond")]
            self.assertEqual(command.external_attr >> 16, 0o100755)
            self.assertEqual(command.file_size, os.path.getsize(env["MILLPOND_COMMAND"]))
            if shutil.which("strip"):
                given = os.path.getsize(os.environ["MILLPOND_LIBRARY"])
                self.assertLess(os.path.getsize(os.path.join(place, "millpond", "libmillpond.so")), given / 2)
            own = {key: value for key, value in os.environ.items() if not key.startswith("MILLPOND_")}
            use = "import millpond; millpond.use_host(); print(millpond.library_path(), millpond.allocate(512))"
            command = [sys.executable, "-B", "-c", use]
            used = subprocess.run(command, cwd=place, env=own, capture_output=True, text=True)
            self.assertEqual(used.returncode, 0, used.stderr)
            self.assertIn(os.path.join(place, "millpond", "libmillpond.so"), used.stdout)


    @unittest.skipUnless(CAN_BUILD, "setuptools, wheel and pyelftools are not installed")
    @unittest.skipUnless((HERE.parent.parent / "crates" / "capi").exists(), "not in the repository")
    def test_the_source_distribution_builds_by_itself(self):
        with tempfile.TemporaryDirectory() as folder:
            build = f"import build_hook; print(build_hook.build_sdist({folder!r}))"
            built = subprocess.run([sys.executable, "-c", build], cwd=HERE.parent, capture_output=True, text=True)
            self.assertEqual(built.returncode, 0, built.stderr)
            self.assertFalse((HERE.parent / "rust").exists())
            with tarfile.open(os.path.join(folder, built.stdout.split()[-1])) as archive:
                archive.extractall(folder)
            (source,) = [name for name in pathlib.Path(folder).iterdir() if name.is_dir()]
            for name in ("build_hook.py", "LICENSE-MIT", "rust/Cargo.lock", "rust/crates/capi/include/millpond.h"):
                self.assertTrue((source / name).exists(), name)
            # Checks only that the manifests fit together: a build takes minutes.
            asked = ["cargo", "metadata", "--offline", "--locked", "--no-deps", "--format-version", "1"]
            if shutil.which("cargo"):
                done = subprocess.run(asked, cwd=source / "rust", capture_output=True, text=True)
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("millpond-capi", done.stdout)


class PlayedCuPy:
    """The part of CuPy that the allocator needs, without a device: it calls the C functions as CuPy does."""

    def __init__(self, device):
        self.cuda = self.memory = self
        self.id, self.ptr, self.owners = device, 0, []

    def Device(self):
        return self

    def get_current_stream(self):
        return self

    def CFunctionAllocator(self, param, malloc, free, owner):
        pointer = ctypes.c_void_p
        malloc = ctypes.CFUNCTYPE(pointer, pointer, ctypes.c_size_t, ctypes.c_int)(malloc)
        free = ctypes.CFUNCTYPE(None, pointer, pointer, ctypes.c_int)(free)
        device = self.id
        self.owners.append(owner)

        class Memory:
            def __init__(self, nbytes):
                self.ptr = malloc(param, nbytes, device) or 0

            def __del__(self):
                free(param, self.ptr, device)

        return types.SimpleNamespace(malloc=Memory)


class CuPy(unittest.TestCase):
    def test_a_block_is_freed_on_the_stream_that_allocated_it(self):
        cupy = PlayedCuPy(30)
        malloc = millpond.cupy.allocator(cupy)
        cupy.ptr = 7
        block = malloc(MIB)
        address = block.ptr
        self.assertEqual(millpond.statistics(30).used, MIB)
        cupy.ptr = 8
        del block
        self.assertEqual(millpond.statistics(30).used, 0)
        self.assertEqual(malloc(0).ptr, 0)
        cupy.ptr = 7
        self.assertEqual(malloc(MIB).ptr, address)

    def test_a_stream_that_allocated_is_kept(self):
        cupy = PlayedCuPy(32)
        malloc = millpond.cupy.allocator(cupy)
        malloc(MIB), malloc(MIB)
        self.assertEqual(cupy.owners, [cupy.get_current_stream()])

    def test_out_of_memory_is_an_exception(self):
        with self.assertRaisesRegex(millpond.OutOfMemory, "out of memory"):
            millpond.cupy.allocator(PlayedCuPy(31))(1 << 50)

    @unittest.skipIf(importlib.util.find_spec("cupy"), "CuPy is installed")
    def test_a_missing_cupy_is_said(self):
        with self.assertRaisesRegex(ImportError, "millpond.cupy needs CuPy"):
            millpond.cupy.enable()


if __name__ == "__main__":
    unittest.main()
