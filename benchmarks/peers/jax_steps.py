"""Training steps (SGD) of nets of benchmarks/nets.h in JAX: jax_steps.py NET ROWS SECONDS.

NET is mlp or transformer. Prints steps per second of the compiled step, its parameters donated, on one core."""

import os
import sys
import time

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp

WIDTH, HEADS, INNER, POSITIONS = 128, 4, 512, 64


def linear(key, inputs, outputs):
    return jax.random.uniform(key, (inputs, outputs), minval=-0.15, maxval=0.15), jnp.zeros(outputs)


def apply(layer, x):
    weight, bias = layer
    return x @ weight + bias


def init_mlp(key):
    sizes = [(32, 128), (128, 128), (128, 2)]
    return [linear(k, *size) for k, size in zip(jax.random.split(key, len(sizes)), sizes)]


def mlp(parameters, x):
    for layer in parameters[:-1]:
        x = jnp.tanh(apply(layer, x))
    return apply(parameters[-1], x)


def init_encoder(key):
    keys = jax.random.split(key, 4)
    return {
        "all": linear(keys[0], WIDTH, 3 * WIDTH),
        "joined": linear(keys[1], WIDTH, WIDTH),
        "inner": linear(keys[2], WIDTH, INNER),
        "outer": linear(keys[3], INNER, WIDTH),
        "norm1": (jnp.ones(WIDTH), jnp.zeros(WIDTH)),
        "norm2": (jnp.ones(WIDTH), jnp.zeros(WIDTH)),
    }


def normalised(norm, x):
    scale, shift = norm
    centred = x - x.mean(-1, keepdims=True)
    return centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * scale + shift


def encoder(layers, x):
    rows = x.shape[0]
    # One product for queries, keys and values is faster than three.
    parts = apply(layers["all"], x).reshape(rows, POSITIONS, 3, HEADS, WIDTH // HEADS)
    queries, keys, values = parts.transpose(2, 0, 3, 1, 4)
    scores = (queries @ keys.swapaxes(-1, -2)) * (WIDTH // HEADS) ** -0.5
    mixed = jax.nn.softmax(scores) @ values
    attention = apply(layers["joined"], mixed.swapaxes(1, 2).reshape(rows, POSITIONS, WIDTH))
    middle = normalised(layers["norm1"], x + attention)
    inner = jax.nn.relu(apply(layers["inner"], middle))
    return normalised(layers["norm2"], middle + apply(layers["outer"], inner))


def init_transformer(key):
    first, second, last = jax.random.split(key, 3)
    return {"encoders": [init_encoder(first), init_encoder(second)], "out": linear(last, WIDTH, 10)}


def transformer(parameters, x):
    for layers in parameters["encoders"]:
        x = encoder(layers, x)
    return apply(parameters["out"], x.mean(1))


# Parameters, logits, the shape of a row and the number of classes.
NETS = {
    "mlp": (init_mlp, mlp, (32,), 2),
    "transformer": (init_transformer, transformer, (POSITIONS, WIDTH), 10),
}


def main():
    init, logits, shape, classes = NETS[sys.argv[1]]
    rows, seconds = int(sys.argv[2]), float(sys.argv[3])

    def loss(parameters, x, y):
        log_probability = jax.nn.log_softmax(logits(parameters, x))
        return -jnp.mean(jnp.take_along_axis(log_probability, y[:, None], axis=1))

    def step(parameters, x, y):
        cost, gradients = jax.value_and_grad(loss)(parameters, x, y)
        return jax.tree.map(lambda p, g: p - 0.01 * g, parameters, gradients), cost

    train = jax.jit(step, donate_argnums=0)
    parameters = init(jax.random.key(1))
    x = jax.random.uniform(jax.random.key(2), (rows, *shape))
    y = jnp.arange(rows, dtype=jnp.int32) % classes
    parameters, cost = train(parameters, x, y)
    cost.block_until_ready()
    begin, warm = time.perf_counter(), 0
    while warm < 3 or (warm < 50 and time.perf_counter() - begin < seconds):
        parameters, cost = train(parameters, x, y)
        cost.block_until_ready()
        warm += 1
    batch = 16 if (time.perf_counter() - begin) / warm < 0.01 else 1
    steps, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        for _ in range(batch):
            parameters, cost = train(parameters, x, y)
        cost.block_until_ready()
        steps += batch
    print(steps / (time.perf_counter() - start))


main()
