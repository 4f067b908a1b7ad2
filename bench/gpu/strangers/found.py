"""Orders that other people's programs were found to have, each as a small program, with its corrected twin: found.py NAME
[right].

`run.py found` runs all of them under `millpond check`, which names each and nothing in the twins. docs/found.md tells of
them.
"""

import sys

import torch

RIGHT = sys.argv[2:] == ["right"]


def handed_to_a_thread():
    """A tensor of the default stream is given to a thread that works on a stream of its own, and dropped there."""
    import threading

    kept, weight = [torch.ones(1, 1, 512, 512, device="cuda")], torch.ones(1, 1, 2, 2, device="cuda")

    def work():
        stream = torch.cuda.Stream()
        torch.cuda.synchronize()
        with torch.cuda.stream(stream):
            for _ in range(50):
                if RIGHT:
                    kept[0].record_stream(stream)
                # The tensor of the round before is dropped here. The first is one of the default stream, which never
                # waits for this one.
                kept[0] = torch.nn.functional.conv2d(kept[0], weight)
                kept[0].div_(4.0)
        torch.cuda.synchronize()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    print(float(kept[0].sum()))


def result_of_another_stream():
    """A clone of the ambient stream is read on a side stream and dropped as the function returns."""
    ambient, side = torch.cuda.Stream(), torch.cuda.Stream()

    def forward(x):
        copy = x.clone()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            if RIGHT:
                copy.record_stream(side)
            return copy * 2

    with torch.cuda.stream(ambient):
        x = torch.ones(1000, device="cuda")
        out = forward(x)
        ambient.wait_stream(side)
        print(float(out.sum()))
    if RIGHT:
        out.record_stream(ambient)
    torch.cuda.synchronize()


def generator_of_a_graph():
    """A generator's seed and offset are allocated on the default stream, and filled on a capturing one that never
    waited for it."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    torch.rand(1, device="cuda")
    graph.register_generator_state(torch.cuda.default_generators[0].clone_state())
    if RIGHT:
        stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graph.capture_begin()
        out = torch.rand(5, device="cuda")
        graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    graph.replay()
    print(out.shape[0])
    torch.cuda.synchronize()


if __name__ == "__main__":
    {it.__name__: it for it in (handed_to_a_thread, result_of_another_stream, generator_of_a_graph)}[sys.argv[1]]()
