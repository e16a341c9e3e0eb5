"""Rows in a Parquet file, compressed, in batches: a log larger than memory is no problem."""

from collections.abc import Iterable
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, Final

import msgspec

from nodrop.audit.rows import Row
from nodrop.protocol import extras

_ROWS_TOGETHER: Final = 10_000


def write(path: Path, rows: Iterable[Row]) -> int:
    """Write rows to a file; return how many there were.

    Raises:
        NotInstalledError: it takes pyarrow.
    """
    try:
        pa: Any = import_module("pyarrow")  # an extra, and a large one, without types
        pq: Any = import_module("pyarrow.parquet")
    except ImportError as error:
        raise extras.missing_here("pyarrow", "export") from error
    texts = {
        name: pa.string() for name, kind in Row.__annotations__.items() if kind in {str, str | None}
    }
    numbers = {
        name: pa.int64() for name, kind in Row.__annotations__.items() if kind in {int, int | None}
    }
    maps = dict.fromkeys(("params", "covariates"), pa.map_(pa.string(), pa.float64()))
    kinds = {**texts, **numbers, **maps, "observed_ids": pa.list_(pa.string())}
    schema = pa.schema([(name, kinds[name]) for name in Row.__struct_fields__])
    written = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        waiting = iter(rows)
        while together := list(islice(waiting, _ROWS_TOGETHER)):
            plain = [msgspec.to_builtins(row) for row in together]
            for row in plain:
                row |= {name: list(row[name].items()) for name in maps}
            writer.write_table(pa.Table.from_pylist(plain, schema=schema))
            written += len(plain)
    return written
