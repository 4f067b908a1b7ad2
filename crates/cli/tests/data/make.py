#!/usr/bin/env python3
"""Writes the snapshots of this folder: small, and of the shape that PyTorch writes.

`torch.cuda.memory._dump_snapshot` pickles plain dicts and lists with Python's default protocol (4, from Python 3.14
on 5); PyTorch's own writer, used from C++, makes protocol 2.
"""

import pickle

FRAMES = [{"name": "forward", "filename": "train.py", "line": 12}, {"name": "<module>", "filename": "train.py", "line": 40}]
BASE, SIDE = 0x7F5A_2000_0000, 0x5581_2345_6780


def entry(action, addr, size, stream=0, time_us=0):
    where = "device_free" if action == "oom" else "addr"
    return {"action": action, where: addr, "size": size, "stream": stream, "time_us": time_us, "frames": FRAMES}


def free(addr, size, stream=0, time_us=0):
    return [entry("free_requested", addr, size, stream, time_us), entry("free_completed", addr, size, stream, time_us + 1)]


def segment(device):
    block = {"address": BASE, "size": 512, "requested_size": 500, "state": "active_allocated", "frames": []}
    return {"device": device, "address": BASE, "total_size": 2 << 20, "allocated_size": 512, "active_size": 512,
            "requested_size": 500, "stream": 0, "segment_type": "small", "segment_pool_id": (0, 0),
            "is_expandable": False, "frames": FRAMES, "blocks": [block]}


ONE = (
    free(BASE + 0x9000, 4096, 0, 1_000)  # from before the recording
    + [entry("segment_alloc", BASE, 2 << 20, 0, 1_100), entry("alloc", BASE, 500, 0, 1_101)]
    + [entry("alloc", BASE + 512, 1 << 20, SIDE, 1_200)]
    + free(BASE, 500, 0, 1_300)
    + [entry("alloc", BASE, 300, 0, 1_400), entry("oom", 1 << 30, 8 << 30, 0, 1_500)]
    + [entry("free_requested", BASE + 512, 1 << 20, SIDE, 1_600), entry("snapshot", 0, 0, 0, 501_000)]
)
OTHER = [entry("alloc", BASE, 4096), *free(BASE, 4096)]
SETTINGS = {"PYTORCH_CUDA_ALLOC_CONF": "", "garbage_collection_threshold": 0.0, "max_split_size": -1}


def snapshot(traces, segments=None, annotations=()):
    return {"segments": segments or [segment(0)], "device_traces": traces, "allocator_settings": SETTINGS,
            "external_annotations": list(annotations)}


def stage(name, stage, time_us):
    return {"name": name, "stage": stage, "device": 0, "time_us": time_us}


# A step in two parts, the first of which began before the history; memory of the default pool and of a graph.
PRIVATE = BASE + (64 << 20)
ANNOTATED = (
    [entry("alloc", BASE, 1 << 20, 0, 5_000_000), entry("alloc", PRIVATE, 512, 0, 5_000_100)]  # an earlier segment's
    + free(PRIVATE, 512, 0, 5_000_200)
    + [entry("segment_free", PRIVATE, 2 << 20, 0, 5_000_300), entry("segment_alloc", PRIVATE, 2 << 20, 0, 5_000_400)]
    + [entry("alloc", PRIVATE, 1 << 20, 0, 5_001_500), entry("alloc", BASE + (1 << 20), 1 << 19, SIDE, 5_002_500)]
    + free(PRIVATE, 1 << 20, 0, 5_250_000)
    + [entry("alloc", BASE + (3 << 19), 4096, 0, 6_500_000)]
)
STAGES = [stage("warm-up", "END", 5_000_050), stage("step 1", "START", 5_001_000), stage("forward", "START", 5_001_200),
          stage("forward", "END", 5_002_600), stage("backward", "START", 5_002_700), stage("empty", "START", 5_002_800),
          stage("empty", "END", 5_002_900), stage("backward", "END", 5_300_000), stage("step 1", "END", 5_300_001),
          stage("step 2", "START", 6_000_000)]
SEGMENTS = [segment(0), segment(0) | {"address": PRIVATE, "segment_pool_id": (0, 1), "blocks": []}]


for protocol in (2, 3, 4, 5):
    with open(f"one_device_p{protocol}.pickle", "wb") as file:
        pickle.dump(snapshot([ONE, []]), file, protocol)
with open("annotated.pickle", "wb") as file:
    pickle.dump(snapshot([ANNOTATED, []], SEGMENTS, STAGES), file)
with open("two_devices.pickle", "wb") as file:
    pickle.dump(snapshot([ONE, OTHER]), file)
with open("no_history.pickle", "wb") as file:
    pickle.dump(snapshot([[], []]), file)
