"""One rank under torchrun: DistributedDataParallel over Gloo, one step of the net 32-128-128-2.

    torchrun --standalone --nproc-per-node 2 torch_first_step.py"""

import torch
import torch.distributed as dist
from torch import nn

torch.set_num_threads(1)
dist.init_process_group("gloo")
net = nn.Sequential(
    nn.Linear(32, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 2)
)
net = nn.parallel.DistributedDataParallel(net)
sgd = torch.optim.SGD(net.parameters(), lr=0.01)
loss = nn.functional.cross_entropy(net(torch.full((32, 32), 0.5)), torch.ones(32, dtype=torch.int64))
loss.backward()
sgd.step()
dist.destroy_process_group()
