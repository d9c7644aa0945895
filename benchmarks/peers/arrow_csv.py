"""Reads a file of the benchmark's with pyarrow's CSV reader on one thread, and prints bytes per second.

Usage: arrow_csv.py criteo|multislot FILE

Of several block sizes the fastest counts, in processor time. Columns have explicit types, which is
faster than to infer them; those that nobody needs are left out.
"""
import os
import sys
import time

import pyarrow as pa
from pyarrow import csv


def columns_of(kind):
    """Name and type of each column; None for those that are left out."""
    if kind == "criteo":
        cells = [("label", pa.int64())]
        cells += [(f"I{i}", pa.int64()) for i in range(1, 14)]
        return cells + [(f"C{i}", pa.string()) for i in range(1, 27)]
    cells = [("dense_count", None)] + [(f"I{i}", pa.float32()) for i in range(1, 14)]
    for i in range(1, 27):
        cells += [(f"C{i}_count", None), (f"C{i}", pa.uint64())]
    return cells + [("label_count", None), ("label", pa.int64())]


def read(kind, path, block_size):
    columns = columns_of(kind)
    wanted = {name: dtype for name, dtype in columns if dtype is not None}
    return csv.read_csv(
        path,
        read_options=csv.ReadOptions(
            use_threads=False, block_size=block_size, column_names=[name for name, _ in columns]),
        parse_options=csv.ParseOptions(delimiter="\t" if kind == "criteo" else " "),
        convert_options=csv.ConvertOptions(
            column_types=wanted, include_columns=list(wanted), strings_can_be_null=False))


def main():
    kind, path = sys.argv[1:]
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    best = float("inf")
    for block_size in (1 << 18, 1 << 20, 1 << 22):
        begin = time.process_time()
        table = read(kind, path, block_size)
        best = min(best, time.process_time() - begin)
        del table
    print(os.path.getsize(path) / best)


main()
