"""Verified files of the Hugging Face hub: in its cache, or fetched within their stated size and a stated time.

Neither a path nor a size nor a time depends on a server; `tfbook.interop.hub` lists the environment variables.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urljoin, urlsplit

from tfbook.data.download import DataUnavailable, File, cache_folder, cache_problem, is_offline, locked
from tfbook.data.transfer import HEADERS, RetryPolicy, SourceFailed, fill, in_time, lowest_cause

_PATIENCE = 10.0  # seconds for a server to say how large a file is
_DOWNLOAD = 1800.0  # seconds that a file may take, or more for one that takes longer at
_SLOWEST = 50_000  # bytes per second
_RETRY = RetryPolicy(connect=_PATIENCE, attempts=2)
_REDIRECTS = 10
_ADVICE = """{what} is not in the cache {cache} and could not be fetched. Tried:
{tried}
Connect to the network and call again, which fetches only what is missing; or copy the cache's folder {folder} from a \
machine that has it; or set HF_ENDPOINT to a server that offers it."""


@dataclass(frozen=True, kw_only=True)
class HubFile:
    """A file of a repository, its size in bytes and its hash."""

    name: str
    size: int
    sha256: str

    def __post_init__(self) -> None:
        if not re.fullmatch("[0-9a-f]{64}", self.sha256):
            raise ValueError(f"sha256 is {self.sha256!r}; expected 64 hexadecimal digits")
        if not all(map(_is_plain, self.name.split("/"))):
            raise ValueError(f"name is {self.name!r}; expected a path below the repository")


def _is_plain(name: str) -> bool:
    """Whether it is a name of the hub's, which never leads out of a folder."""
    return re.fullmatch(r"[\w.-]+", name) is not None and name.strip(".") != ""


@dataclass(frozen=True, kw_only=True)
class HubModel:
    """A repository of the hub at one commit, its files, and the number of heads, which no file of weights tells."""

    repository: str
    revision: str
    license: str
    heads: int
    files: tuple[HubFile, ...]

    def __post_init__(self) -> None:
        if not re.fullmatch("[0-9a-f]{40}", self.revision):
            raise ValueError(f"revision is {self.revision!r}; expected 40 hexadecimal digits")
        if not all(map(_is_plain, self.repository.split("/"))):
            raise ValueError(f"repository is {self.repository!r}; expected OWNER/NAME")

    def __str__(self) -> str:
        return f"{self.repository} ({_megabytes(self.files)}, {self.license})"


def hub_cache() -> Path:
    """The folder `huggingface` in `TFBOOK_DATA`, where that is set, else the cache of `huggingface_hub`.

    Raises DataUnavailable when `TFBOOK_DATA` names an unknown user's home.
    """
    if os.environ.get("TFBOOK_DATA"):
        return cache_folder() / "huggingface"
    from huggingface_hub import constants

    return Path(constants.HF_HUB_CACHE)


def fetch_from_hub(model: HubModel) -> dict[str, Path]:
    """Local paths that hold the verified files, by their names.

    Whatever the cache lacks, or holds damaged, is fetched, with a line before that says how much and from where, and a
    progress bar. A server decides neither where a file is put nor how large it may become nor how long it may take.
    Raises DataUnavailable, which says what was tried and what to do.
    """
    paths = {file.name: path for file in model.files if (path := _cached(model, file))}
    missing = [file for file in model.files if file.name not in paths]
    if not missing:
        return paths
    if reason := _forbidden():
        raise _unavailable(model, f"  nothing: {reason} forbids the network")
    for file in missing:
        _check_offered(model, file)
    size, where = _megabytes(missing), f"from {_endpoint()} into {hub_cache()}"
    print(f"{model.repository} (license {model.license}): fetching {size} {where}, once")
    return paths | {file.name: _downloaded(model, file) for file in missing}


def _cached(model: HubModel, file: HubFile) -> Path | None:
    """Where the cache has the file, at this commit or another; one that is damaged is removed from it."""
    path, blob = _places(model, file)
    others = (hub_cache() / _folder(model) / "snapshots").glob(f"*/{file.name}")
    for each in (path, *others, blob):
        if each.is_file() and each.stat().st_size == file.size and _sha256(each) == file.sha256:
            return each
    _remove(path, hub_cache() / _folder(model))
    return None


def _places(model: HubModel, file: HubFile) -> tuple[Path, Path]:
    """Where the cache names a file, and where it keeps the bytes, under their hash."""
    folder = hub_cache() / _folder(model)
    return folder / "snapshots" / model.revision / file.name, folder / "blobs" / file.sha256


def _check_offered(model: HubModel, file: HubFile) -> None:
    """Asks how large the file is, so that no server is waited for long and no wrong file fetched in vain."""
    url = _url(model, file)
    try:
        size, etag = in_time(_PATIENCE, lambda: _offered(url))
    except TimeoutError:
        raise _unavailable(model, f"  {url}: no answer within {_PATIENCE:g} s") from None
    except SourceFailed as failure:
        raise _unavailable(model, f"  {url}: {failure}") from None
    if re.fullmatch("[0-9a-f]{64}", etag) and etag != file.sha256:  # that of a small file is another hash
        raise _unavailable(model, f"  {url}: refused, its sha256 is {etag}; expected {file.sha256}")
    if size not in (None, file.size):
        raise _unavailable(model, f"  {url}: refused, it has {size:,} bytes; expected {file.size:,}")


def _offered(url: str) -> tuple[int | None, str]:
    """Size and ETag of a file, as far as the hub says them. Raises SourceFailed for whatever else it says."""
    try:
        return _read_head(url)
    except Exception as error:  # a server can fail in any way
        reason = lowest_cause(error).strip().partition("\n")[0].partition(" for url")[0]
        raise SourceFailed(reason, False) from error


def _read_head(url: str) -> tuple[int | None, str]:
    """The store that the hub may lead to is not asked."""
    import requests

    with requests.Session() as session:
        for _ in range(_REDIRECTS):
            with session.head(url, headers=HEADERS, timeout=_PATIENCE, allow_redirects=False) as answer:
                answer.raise_for_status()
                found = answer.headers
                elsewhere = session.get_redirect_target(answer)
                if elsewhere is None or "X-Linked-Size" in found or urlsplit(elsewhere).netloc:
                    size = found.get("X-Linked-Size") or (None if elsewhere else found.get("Content-Length"))
                    return int(size) if size else None, (found.get("X-Linked-Etag") or found.get("ETag") or "").strip(
                        '"'
                    )
                url = urljoin(url, elsewhere)
    raise requests.TooManyRedirects(f"more than {_REDIRECTS} redirects")


def _downloaded(model: HubModel, file: HubFile) -> Path:
    """The path of a fresh download; wrong bytes are fetched once more, and cut ones continued."""
    path, blob = _places(model, file)
    url, expected = _url(model, file), File(path=file.name, sha256=file.sha256)
    seconds = max(_DOWNLOAD, file.size / _SLOWEST)
    try:
        blob.parent.mkdir(parents=True, exist_ok=True)
        with locked(blob, seconds):
            if _cached(model, file) is None:  # another process may have fetched it in the meantime
                fill(blob, url, file.size, expected.verify, replace(_RETRY, download=seconds), resume=True)
        return _linked(path, blob)
    except SourceFailed as failure:
        raise _unavailable(model, f"  {url}: {failure}") from None
    except OSError as error:
        raise DataUnavailable(cache_problem(error, hub_cache(), hub_cache())) from error


def _linked(path: Path, blob: Path) -> Path:
    """The path with a link to the blob, as in the library's cache; the file itself on systems without links."""
    path.parent.mkdir(parents=True, exist_ok=True)
    link = path.with_name(f".{path.name}.{os.getpid()}.link")
    try:
        link.unlink(missing_ok=True)
        link.symlink_to(os.path.relpath(blob, path.parent))
        os.replace(link, path)
    except OSError:
        if os.name == "posix":
            raise
        os.replace(blob, path)  # Windows lets only some users make links
    return path


def _url(model: HubModel, file: HubFile) -> str:
    from huggingface_hub import hf_hub_url

    return hf_hub_url(model.repository, file.name, revision=model.revision, endpoint=_endpoint())


def _endpoint() -> str:
    """The server, by the variable as it is when asked; the library reads it once, when it is imported."""
    from huggingface_hub import constants

    return (os.environ.get("HF_ENDPOINT") or constants.ENDPOINT).rstrip("/")


def _forbidden() -> str:
    """The variable that forbids the network, if one does."""
    from huggingface_hub import constants

    if is_offline():
        return "TFBOOK_OFFLINE"
    return "HF_HUB_OFFLINE" if constants.HF_HUB_OFFLINE else ""


def _sha256(path: Path) -> str:
    from pooch import file_hash

    return file_hash(path)


def _remove(path: Path, folder: Path) -> None:
    """Removes a file of a repository and the link to it; a link may lead anywhere, and what is elsewhere stays."""
    cache, home = os.path.realpath(hub_cache()), os.path.realpath(folder)
    for each in (Path(os.path.realpath(path)), Path(os.path.realpath(path.parent), path.name)):
        if each.is_relative_to(home) and each.is_relative_to(cache):
            with suppress(OSError):  # in a read-only cache, where it is never taken for right either
                each.unlink()


def _folder(model: HubModel) -> str:
    """The cache's name for a repository."""
    return f"models--{model.repository.replace('/', '--')}"


def _megabytes(files: tuple[HubFile, ...] | list[HubFile]) -> str:
    total = sum(file.size for file in files)
    return f"{total / 1e6:,.0f} MB" if total >= 1e6 else f"{total / 1e3:,.1f} kB"


def _unavailable(model: HubModel, tried: str) -> DataUnavailable:
    return DataUnavailable(_ADVICE.format(what=model, cache=hub_cache(), tried=tried, folder=_folder(model)))
