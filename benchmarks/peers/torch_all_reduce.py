"""Two processes add up arrays of BYTES with Gloo over TCP on the loopback.

    torch_all_reduce.py BYTES CALLS ROUNDS

Each process has one thread. Prints the microseconds of a call, the median of the rounds."""

import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS = 2


def add_up(rank, meeting, found, size, calls, rounds):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + meeting, rank=rank, world_size=RANKS)
    values = torch.zeros(size // 4)
    times = []
    for number in range(rounds + 1):
        dist.barrier()
        start = time.perf_counter()
        for _ in range(calls):
            dist.all_reduce(values)
        if number > 0:
            times.append(1e6 * (time.perf_counter() - start) / calls)
    if rank == 0:
        found.put(statistics.median(times))
    dist.destroy_process_group()


def main():
    size, calls, rounds = (int(text) for text in sys.argv[1:4])
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    found = mp.get_context("fork").SimpleQueue()
    with tempfile.TemporaryDirectory() as folder:
        arguments = (os.path.join(folder, "meeting"), found, size, calls, rounds)
        mp.start_processes(add_up, arguments, nprocs=RANKS, start_method="fork")
    print(found.get())


main()
