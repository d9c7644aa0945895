"""Trains the quick start's net (64-128-128-10, tanh, SGD) on the digits in PyTorch.

    torch_digits.py FOLDER SEED BATCH RATE STEPS EVERY GOAL

FOLDER holds digits.csv.gz and order_1234.txt; the rows, their split and their scale are those of
the quick start. Looks at the accuracy on the test rows every EVERY steps, and prints the seconds
from the first step on until it was GOAL, and the steps. One thread."""

import csv
import gzip
import sys
import time

import torch
from torch import nn

TEST_ROWS = 500


def read(folder):
    with gzip.open(folder + "/digits.csv.gz", "rt") as file:
        rows = torch.tensor([[int(cell) for cell in row] for row in csv.reader(file) if row])
    with open(folder + "/order_1234.txt") as file:
        order = torch.tensor([int(index) for index in file.read().split()])
    rows = rows[order]
    return rows[:, :-1].float() / 16 - 0.3, rows[:, -1]


def make_net(seed):
    torch.manual_seed(seed)
    net = nn.Sequential(
        nn.Linear(64, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 10)
    )
    for layer in net:
        if isinstance(layer, nn.Linear):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)
    return net


def main():
    folder = sys.argv[1]
    seed, batch = int(sys.argv[2]), int(sys.argv[3])
    rate = float(sys.argv[4])
    steps, every = int(sys.argv[5]), int(sys.argv[6])
    goal = float(sys.argv[7])
    torch.set_num_threads(1)
    x, y = read(folder)
    x_test, y_test = x[-TEST_ROWS:], y[-TEST_ROWS:]
    x, y = x[:-TEST_ROWS], y[:-TEST_ROWS]
    net = make_net(seed)
    sgd = torch.optim.SGD(net.parameters(), lr=rate, fused=True)
    in_epoch = len(y) // batch
    start = time.perf_counter()
    for step in range(steps):
        if step % in_epoch == 0:
            order = torch.randperm(len(y))
        rows = order[step % in_epoch * batch :][:batch]
        sgd.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
        sgd.step()
        if (step + 1) % every == 0:
            with torch.no_grad():
                right = (net(x_test).argmax(1) == y_test).float().mean().item()
            if right >= goal:
                print(time.perf_counter() - start, step + 1)
                return
    sys.exit(f"the accuracy did not reach {goal} in {steps} steps")


main()
