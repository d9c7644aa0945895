"""Training steps (SGD) of nets of benchmarks/nets.h in JAX: jax_steps.py NET ROWS SECONDS.

NET is mlp, transformer, ctr_dnn_one_table or ctr_dnn_26_tables. Prints steps per second of the compiled step, its
parameters donated, on one core."""

import os
import sys
import time

os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

import jax
import jax.numpy as jnp
import numpy as np

WIDTH, HEADS, INNER, POSITIONS = 128, 4, 512, 64
# As benchmarks/engine/net_sizes.h has them.
CTR_DENSE, CTR_SLOTS, CTR_SLOT_IDS, CTR_WIDTH, CTR_BATCHES = 13, 26, 38462, 10, 64


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


def skewed_ids(batch, count, ids):
    bits = (np.uint64(batch << 40) | np.arange(count, dtype=np.uint64)) + np.uint64(1)
    for shift in (32, 29, 32):
        bits = (bits ^ bits >> np.uint64(shift)) * np.uint64(0x9E3779B97F4A7C15)
    drawn = (bits >> np.uint64(40)).astype(np.float64) * 2.0**-24
    return (drawn * drawn * drawn * ids).astype(np.int64) * 7919 % ids


class Dense:
    """A net whose input is one array."""

    def __init__(self, init, logits, shape, classes):
        self.init, self.logits, self.shape, self.classes = init, logits, shape, classes

    def batches(self, rows):
        return [jax.random.uniform(jax.random.key(2), (rows, *self.shape))]

    def step(self, parameters, x, y):
        cost, gradients = jax.value_and_grad(cross_entropy)(parameters, self.logits, x, y)
        return jax.tree.map(lambda p, g: p - 0.01 * g, parameters, gradients), cost


class CtrDnn:
    """Tables are no parameters of the loss, but the rows that are looked up in them: only these change."""

    classes = 2

    def __init__(self, tables):
        self.tables = tables

    def init(self, key):
        first, *keys = jax.random.split(key, 5)
        sizes = [(CTR_DENSE + CTR_SLOTS * CTR_WIDTH, 400), (400, 400), (400, 400), (400, 2)]
        rows = CTR_SLOTS * CTR_SLOT_IDS // self.tables
        tables = [
            jax.random.uniform(k, (rows, CTR_WIDTH), maxval=0.1) for k in jax.random.split(first, self.tables)
        ]
        return tables, [linear(k, *size) for k, size in zip(keys, sizes)]

    def batches(self, rows):
        result = []
        for batch in range(CTR_BATCHES):
            ids = skewed_ids(batch, rows * CTR_SLOTS, CTR_SLOT_IDS).reshape(rows, CTR_SLOTS)
            if self.tables == 1:
                ids = [ids + np.arange(CTR_SLOTS) * CTR_SLOT_IDS]
            else:
                ids = [ids[:, slot] for slot in range(CTR_SLOTS)]
            dense = jax.random.uniform(jax.random.key(batch), (rows, CTR_DENSE))
            result.append((dense, [jnp.asarray(i, dtype=jnp.int32) for i in ids]))
        return result

    @staticmethod
    def logits(trained, dense):
        rows, layers = trained
        x = jnp.concatenate([dense, *(r.reshape(dense.shape[0], -1) for r in rows)], axis=1)
        for layer in layers[:-1]:
            x = jax.nn.relu(apply(layer, x))
        return apply(layers[-1], x)

    def step(self, parameters, x, y):
        tables, layers = parameters
        dense, ids = x
        rows = [t.at[i].get(mode="promise_in_bounds") for t, i in zip(tables, ids)]
        cost, (row_gradients, layer_gradients) = jax.value_and_grad(cross_entropy)(
            (rows, layers), self.logits, dense, y
        )
        tables = [
            t.at[i].add(-0.01 * g, mode="promise_in_bounds") for t, i, g in zip(tables, ids, row_gradients)
        ]
        return (tables, jax.tree.map(lambda p, g: p - 0.01 * g, layers, layer_gradients)), cost


def cross_entropy(parameters, logits, x, y):
    log_probability = jax.nn.log_softmax(logits(parameters, x))
    return -jnp.mean(jnp.take_along_axis(log_probability, y[:, None], axis=1))


NETS = {
    "mlp": Dense(init_mlp, mlp, (32,), 2),
    "transformer": Dense(init_transformer, transformer, (POSITIONS, WIDTH), 10),
    "ctr_dnn_one_table": CtrDnn(1),
    "ctr_dnn_26_tables": CtrDnn(CTR_SLOTS),
}


def main():
    net, rows, seconds = NETS[sys.argv[1]], int(sys.argv[2]), float(sys.argv[3])
    train = jax.jit(net.step, donate_argnums=0)
    parameters = net.init(jax.random.key(1))
    batches = net.batches(rows)
    y = jnp.arange(rows, dtype=jnp.int32) % net.classes
    parameters, cost = train(parameters, batches[0], y)
    cost.block_until_ready()
    begin, warm = time.perf_counter(), 0
    while warm < 3 or (warm < 50 and time.perf_counter() - begin < seconds):
        parameters, cost = train(parameters, batches[warm % len(batches)], y)
        cost.block_until_ready()
        warm += 1
    at_once = 16 if (time.perf_counter() - begin) / warm < 0.01 else 1
    steps, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        for _ in range(at_once):
            parameters, cost = train(parameters, batches[steps % len(batches)], y)
            steps += 1
        cost.block_until_ready()
    print(steps / (time.perf_counter() - start))


main()
