"""One rank under torchrun that saves checkpoints and goes on from the newest:
DistributedDataParallel over Gloo, the net 32-128-128-2, SGD.

    torchrun --standalone --nproc-per-node 2 --max-restarts 1 torch_restart.py FOLDER EVERY

Rank 0 saves every EVERY steps, and writes the checkpoint's name to FOLDER/latest when it is there.
Each rank writes FOLDER/trace<rank>, as benchmarks/checkpoints/restart_trace.h says."""

import os
import sys
import time

started = time.monotonic()

import torch
import torch.distributed as dist
from torch import nn

folder, every = sys.argv[1], int(sys.argv[2])
attempt = os.environ["TORCHELASTIC_RESTART_COUNT"]
rank = int(os.environ["RANK"])
trace = open(os.path.join(folder, f"trace{rank}"), "a", buffering=1)


def write(what, number, seconds):
    trace.write(f"{attempt} {what} {number} {seconds:.6f}\n")


def put(name, write_to):
    path = os.path.join(folder, name)
    with open(path + ".tmp", "wb") as file:
        write_to(file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".tmp", path)


def save(step):
    state = {"step": step, "net": net.state_dict(), "sgd": sgd.state_dict()}
    put("checkpoint.pt", lambda file: torch.save(state, file))
    put("latest", lambda file: file.write(b"step-%09d\n" % step))


write("start", os.getpid(), started)
torch.set_num_threads(1)
dist.init_process_group("gloo")
torch.manual_seed(1)
net = nn.Sequential(
    nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 2)
)
sgd = torch.optim.SGD(net.parameters(), lr=0.01, fused=True)
step = 0
if os.path.exists(os.path.join(folder, "latest")):
    saved = torch.load(os.path.join(folder, "checkpoint.pt"))
    step = saved["step"]
    net.load_state_dict(saved["net"])
    sgd.load_state_dict(saved["sgd"])
parallel = nn.parallel.DistributedDataParallel(net, gradient_as_bucket_view=True, static_graph=True)
write("from", step, time.monotonic())
x = torch.full((32, 32), 0.5)
y = torch.ones(32, dtype=torch.int64)
while True:
    sgd.zero_grad(set_to_none=True)
    nn.functional.cross_entropy(parallel(x), y).backward()
    sgd.step()
    step += 1
    write("step", step, time.monotonic())
    if step % every == 0 and rank == 0:
        save(step)
