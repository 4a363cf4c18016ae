"""Files that may be damaged or unpack to more than they should, since a few megabytes can hold many gigabytes."""

from __future__ import annotations

import gzip
import io
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TypeVar
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

Data = TypeVar("Data")


def reader(read: Callable[..., Data]) -> Callable[..., Data]:
    """Wraps a function that reads files: any error that their content causes becomes a ValueError that names them."""

    @wraps(read)
    def named(*paths: str | Path) -> Data:
        try:
            return read(*paths)
        except Exception as error:  # a damaged file can raise anything
            if type(error) is ValueError or (isinstance(error, OSError) and error.errno):
                raise
            names = ", ".join(map(str, paths))
            raise ValueError(f"{names}: damaged or another file ({type(error).__name__}: {error})") from error

    return named


def read_member(archive: ZipFile, name: str, *, most: int) -> bytes:
    """A file of a zip archive. Raises ValueError, before unpacking it, when it has more than `most` bytes."""
    member = archive.getinfo(name)
    if member.compress_type not in (ZIP_STORED, ZIP_DEFLATED):  # Python unpacks the others without a limit
        raise ValueError(f"{name} has compression type {member.compress_type}; expected stored or deflated")
    if member.file_size > most:
        raise ValueError(f"{name} unpacks to {member.file_size:,} bytes; expected at most {most:,}")
    with archive.open(member) as file:
        return file.read(member.file_size)  # where there is more than that, the checksum is wrong


class Unpacked(io.RawIOBase):
    """The content of a gzipped file. Its size is known at its end only, so reading past `most` raises ValueError."""

    def __init__(self, path: str | Path, *, most: int):
        super().__init__()
        self.path, self.most, self.count = path, most, 0
        self.stream = gzip.GzipFile(path)

    def readable(self) -> bool:
        """True; a reader asks before it reads."""
        return True

    def readinto(self, buffer: bytearray | memoryview) -> int:  # type: ignore[override] # where it is any buffer
        """Fills the buffer from the start and returns the number of bytes, 0 at the end."""
        count = self.stream.readinto(buffer)
        self.count += count
        if self.count > self.most:
            raise ValueError(f"{self.path} unpacks to more than {self.most:,} bytes")
        return count

    def close(self) -> None:
        """Closes the file."""
        self.stream.close()
        super().close()
