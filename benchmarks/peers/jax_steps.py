"""Training steps of the net 32-128-128-2 (tanh, SGD) in JAX: jax_steps.py ROWS SECONDS.

Prints steps per second of the compiled step, its parameters donated, on one core."""

import os
import sys
import time

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp


def init(key):
    sizes = [(32, 128), (128, 128), (128, 2)]
    return [
        (jax.random.uniform(k, size, minval=-0.15, maxval=0.15), jnp.zeros(size[1]))
        for k, size in zip(jax.random.split(key, len(sizes)), sizes)
    ]


def loss(parameters, x, y):
    for weight, bias in parameters[:-1]:
        x = jnp.tanh(x @ weight + bias)
    weight, bias = parameters[-1]
    log_probability = jax.nn.log_softmax(x @ weight + bias)
    return -jnp.mean(jnp.take_along_axis(log_probability, y[:, None], axis=1))


def step(parameters, x, y):
    cost, gradients = jax.value_and_grad(loss)(parameters, x, y)
    return jax.tree.map(lambda p, g: p - 0.01 * g, parameters, gradients), cost


def main():
    rows, seconds = int(sys.argv[1]), float(sys.argv[2])
    train = jax.jit(step, donate_argnums=0)
    parameters = init(jax.random.key(1))
    x = jnp.full((rows, 32), 0.5)
    y = jnp.ones(rows, dtype=jnp.int32)
    for _ in range(50):
        parameters, cost = train(parameters, x, y)
    cost.block_until_ready()
    steps, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        for _ in range(16):
            parameters, cost = train(parameters, x, y)
        cost.block_until_ready()
        steps += 16
    print(steps / (time.perf_counter() - start))


main()
