"""Parquet files, by pyarrow, an extra."""

from pathlib import Path

from .._choices import UserError


def columns_of(path: Path) -> tuple[list[str], list[list[str]]]:
    """The names and the fields of all columns, as the text that a CSV file would have: they are read in the same way."""
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise UserError(f"{path} is a Parquet file, which needs pyarrow: pip install 'lagrax[parquet]'") from None
    try:
        table = parquet.read_table(path)
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path} is a Parquet file that cannot be read ({str(error).splitlines()[0]})") from None
    if not table.num_rows:
        raise UserError(f"{path} is empty: expected a table with a row for each sample")
    return table.column_names, [["" if v is None else str(v) for v in column.to_pylist()] for column in table.columns]
