#!/usr/bin/env python3
"""Steps a second of a net with PyTorch on a GPU: the nets of bench_gpu.cc, as a line of JSON.

    torch_steps.py --net resnet50 --rows 64 --form eager|compile|reduce|channels_last|captured [--tf32] [--bf16]

reduce is torch.compile(mode="reduce-overhead"); captured is a whole step, with its update, in one CUDA graph.
"""
import argparse
import json
import time

import torch
from torch import nn
from torch.nn import functional as F


class Encoder(nn.Module):
    def __init__(self, width=512, heads=8):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(width, width) for _ in range(4))
        self.inner, self.outer = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)

    def split(self, x):
        return x.unflatten(-1, (self.heads, -1)).transpose(1, 2)

    def forward(self, x):
        q, k, v = (self.split(f(x)) for f in (self.q, self.k, self.v))
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        x = self.first(x + self.o(mixed))
        return self.second(x + self.outer(F.gelu(self.inner(x))))


class Transformer(nn.Module):
    def __init__(self, words=32000, width=512):
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.layers = nn.Sequential(*[Encoder(width) for _ in range(6)])
        self.out = nn.Linear(width, words)

    def forward(self, x):
        return self.out(self.layers(self.words(x))).flatten(0, 1)


class Bottleneck(nn.Module):
    def __init__(self, inputs, filters, stride):
        super().__init__()
        conv = lambda i, o, size, step: nn.Sequential(
            nn.Conv2d(i, o, size, step, size // 2, bias=False), nn.BatchNorm2d(o))
        self.body = nn.Sequential(conv(inputs, filters, 1, 1), nn.ReLU(), conv(filters, filters, 3, stride),
                                  nn.ReLU(), conv(filters, 4 * filters, 1, 1))
        same = stride == 1 and inputs == 4 * filters
        self.around = nn.Identity() if same else conv(inputs, 4 * filters, 1, stride)

    def forward(self, x):
        return F.relu(self.body(x) + self.around(x))


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for i in range(blocks):
            filters = 64 << stage
            layers.append(Bottleneck(inputs, filters, 2 if i == 0 and stage > 0 else 1))
            inputs = 4 * filters
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


def mlp(inputs, hidden):
    return nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                         nn.Linear(hidden, 10))


def lenet():
    return nn.Sequential(nn.Conv2d(1, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(800, 500), nn.ReLU(), nn.Linear(500, 10))


NETS = {
    'mlp': (lambda: mlp(784, 512), (784,), 10, 1),
    'small_mlp': (lambda: mlp(64, 64), (64,), 10, 1),
    'lenet': (lenet, (1, 28, 28), 10, 1),
    'resnet50': (resnet50, (3, 224, 224), 1000, 1),
    'transformer': (Transformer, (128,), 32000, 128),
}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--net', choices=NETS, required=True)
    parser.add_argument('--rows', type=int, default=64)
    parser.add_argument('--form', choices=['eager', 'compile', 'reduce', 'channels_last', 'captured'], default='eager')
    parser.add_argument('--optimizer', choices=['momentum', 'adam'], default='momentum')
    parser.add_argument('--seconds', type=float, default=2)
    parser.add_argument('--tf32', action='store_true')
    parser.add_argument('--bf16', action='store_true')
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = args.tf32
    torch.backends.cudnn.allow_tf32 = args.tf32
    torch.manual_seed(1)
    make, shape, classes, labels = NETS[args.net]
    net = make().cuda()
    words = args.net == 'transformer'
    x = (torch.randint(classes, (args.rows, *shape), device='cuda') if words
         else torch.rand(args.rows, *shape, device='cuda'))
    y = torch.arange(args.rows * labels, device='cuda') % classes
    if args.form == 'channels_last':
        net, x = net.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    parameters = sum(p.numel() for p in net.parameters())
    optimizer = (torch.optim.Adam(net.parameters(), 1e-4, fused=True, capturable=True) if args.optimizer == 'adam'
                 else torch.optim.SGD(net.parameters(), 1e-3, 0.9, fused=True))
    if args.form in ('compile', 'reduce'):
        net = torch.compile(net, mode='reduce-overhead' if args.form == 'reduce' else 'default')

    def step():
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast('cuda', torch.bfloat16, enabled=args.bf16):
            loss = F.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        return loss

    first = step().item()
    run = step
    if args.form == 'captured':
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(graph):
            step()
        run = graph.replay
    for _ in range(10):
        run()
    torch.cuda.synchronize()
    begin, steps = time.perf_counter(), 0
    while time.perf_counter() - begin < args.seconds:
        for _ in range(5):
            run()
        torch.cuda.synchronize()
        steps += 5
    seconds = time.perf_counter() - begin
    print(json.dumps({'net': args.net, 'by': 'torch ' + args.form, 'rows': args.rows, 'parameters': parameters,
                      'steps_per_s': round(steps / seconds, 2), 'first_loss': round(first, 4),
                      'last_loss': round(step().item(), 4), 'steps': steps}), flush=True)


main()
