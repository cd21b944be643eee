"""Which engine an address belongs to.

index                                            a folder, or a folder of numbered versions
postgresql://user@host/database?table=NAME       a table of a PostgreSQL database with pgvector
milvus://host:19530/NAME                         a collection of a Milvus server
milvus:///path/file.db?collection=NAME           a collection in a file of Milvus Lite
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cmimh_tf.search.engines.embedded import EmbeddedEngine, create_embedded, is_embedded_index
from cmimh_tf.search.engines.interface import Engine, Header

POSTGRES_SCHEMES = ("postgresql://", "postgres://")
MILVUS_SCHEME = "milvus://"


def open_engine(address: str, **options: Any) -> Engine:
    """Opens the index at an address.

    Raises:
        IndexNotFound: if there is none.
        ValueError: for an address or an option that is not known.
    """
    if address.startswith(POSTGRES_SCHEMES):
        from cmimh_tf.search.engines.postgres import PostgresEngine

        return PostgresEngine(address, **options)
    if address.startswith(MILVUS_SCHEME):
        from cmimh_tf.search.engines.milvus import MilvusEngine

        return MilvusEngine(address, **options)
    return EmbeddedEngine(newest_version(_folder(address)), **options)


def create_engine(address: str, header: Header) -> None:
    """Makes an empty index at an address.

    Raises:
        FileExistsError: if there is one already.
        ValueError: for an address that is not known.
    """
    if address.startswith(POSTGRES_SCHEMES):
        from cmimh_tf.search.engines.postgres import create_postgres

        create_postgres(address, header)
    elif address.startswith(MILVUS_SCHEME):
        from cmimh_tf.search.engines.milvus import create_milvus

        create_milvus(address, header)
    else:
        create_embedded(_folder(address), header)


def _folder(address: str) -> Path:
    if "://" in address:
        raise ValueError(
            "`index` must be a folder, or start with postgresql:// or milvus://. Received: "
            f"{address.partition('://')[0]}://..."
        )
    return Path(address)


def is_folder_address(address: str) -> bool:
    """Whether an address is that of a folder, not of a database.

    Raises:
        ValueError: for an address that is not known.
    """
    if address.startswith((*POSTGRES_SCHEMES, MILVUS_SCHEME)):
        return False
    _folder(address)
    return True


def newest_version(folder: Path) -> Path:
    """`folder`, or the one with the greatest number in it if it holds versions of an index."""
    if is_embedded_index(folder) or not folder.is_dir():
        return folder
    versions = [entry for entry in folder.iterdir() if entry.name.isdecimal() and is_embedded_index(entry)]
    return max(versions, key=lambda entry: int(entry.name), default=folder)
