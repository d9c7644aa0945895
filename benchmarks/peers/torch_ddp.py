"""Two processes train the net INPUTS-HIDDEN-HIDDEN-2 (tanh, SGD) with PyTorch's
DistributedDataParallel over Gloo, or with INPUTS 0 the net lenet of benchmarks/nets.h.

    torch_ddp.py INPUTS HIDDEN ROWS STEPS BUCKET_MB [compiled]

Each process has one thread and ROWS rows of its own. Prints the steps per second of the slower
one. Set up as PyTorch's documentation advises: gradients are views of the buckets, the graph is
static, SGD is fused, and gradients are dropped instead of zeroed."""

import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn

RANKS = 2
WARM_UP = 50


def lenet():
    return nn.Sequential(
        nn.Conv2d(1, 20, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(20, 50, 5),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(800, 500),
        nn.ReLU(),
        nn.Linear(500, 10),
    )


def mlp(inputs, hidden):
    return nn.Sequential(
        nn.Linear(inputs, hidden),
        nn.Tanh(),
        nn.Linear(hidden, hidden),
        nn.Tanh(),
        nn.Linear(hidden, 2),
    )


def train(rank, meeting, rates, inputs, hidden, rows, steps, bucket_mb, compiled):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=RANKS)
    torch.manual_seed(1)
    net = lenet() if inputs == 0 else mlp(inputs, hidden)
    net = nn.parallel.DistributedDataParallel(
        net, gradient_as_bucket_view=True, static_graph=True, bucket_cap_mb=bucket_mb
    )
    if compiled:
        net = torch.compile(net)
    sgd = torch.optim.SGD(net.parameters(), lr=0.01, fused=True)
    x = torch.rand(rows, 1, 28, 28) if inputs == 0 else torch.full((rows, inputs), 0.5)
    y = torch.ones(rows, dtype=torch.int64)
    start = 0.0
    for step in range(WARM_UP + steps):
        if step == WARM_UP:
            start = time.perf_counter()
        sgd.zero_grad(set_to_none=True)
        loss = nn.functional.cross_entropy(net(x), y)
        loss.backward()
        sgd.step()
    rates.put(steps / (time.perf_counter() - start))
    dist.destroy_process_group()


def main():
    numbers = [int(text) for text in sys.argv[1:6]]
    compiled = sys.argv[6:] == ["compiled"]
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    rates = mp.get_context("fork").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        arguments = (os.path.join(folder, "meeting"), rates, *numbers, compiled)
        mp.start_processes(train, arguments, nprocs=RANKS, start_method="fork")
    print(min(rates.get() for _ in range(RANKS)))


main()
