"""A stand-in for the Hugging Face hub: the requests that `huggingface_hub` makes for a file, answered as the hub does.

python tests/data/hub_server.py FOLDER    serves FOLDER/OWNER/NAME/FILE; prints the address for HF_ENDPOINT
"""

import hashlib
import re
import sys
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from pathlib import Path

from loopback import Reply, Server, answer

COMMIT = "0123456789abcdef0123456789abcdef01234567"  # what `main` stands for
LARGE = (".safetensors", ".bin")  # kept apart from the repository, so that their hash is of their bytes


class Hub:
    """A reply for `Server.replies`: HEAD and GET of /OWNER/NAME/resolve/REVISION/FILE.

    `faults` are other replies, by method and name of a file, each for one request, in this order; the last for all that
    follow.
    """

    def __init__(self, files: Mapping[str, bytes | Path]):
        self.files = dict(files)  # by "OWNER/NAME/FILE"
        self.faults: dict[tuple[str, str], list[Reply | None]] = {}

    def __call__(self, handler: BaseHTTPRequestHandler) -> None:
        found = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", handler.path)
        if not found or f"{found[1]}/{found[3]}" not in self.files:
            code = "EntryNotFound" if found else "RepoNotFound"
            answer(b"not here", status=404, headers={"X-Error-Code": code, "X-Error-Message": "not here"})(handler)
            return
        waiting = self.faults.get((handler.command, found[3]), [None])
        fault = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        (fault or self.file(f"{found[1]}/{found[3]}", found[2]))(handler)

    def file(self, name: str, revision: str = COMMIT, **changed: str) -> Reply:
        """The file, or its end where a client continues a download; `changed` headers have `_` for `-`."""
        content = self.files[name]
        body = content.read_bytes() if isinstance(content, Path) else content
        headers = {"Accept-Ranges": "bytes", "X-Repo-Commit": revision if len(revision) == 40 else COMMIT}
        if name.endswith(LARGE):
            headers |= {"X-Linked-Etag": f'"{hashlib.sha256(body).hexdigest()}"', "X-Linked-Size": str(len(body))}
        git_hash = hashlib.sha1(b"blob %d\0" % len(body) + body).hexdigest()
        headers["ETag"] = f'"{git_hash}"'
        headers |= {key.replace("_", "-"): value for key, value in changed.items()}

        def reply(handler: BaseHTTPRequestHandler) -> None:
            start = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
            if not start:
                answer(body, headers=headers)(handler)
                return
            first = int(start[1])
            rest = {"Content-Range": f"bytes {first}-{len(body) - 1}/{len(body)}"}
            answer(body[first:], status=206, headers=headers | rest)(handler)

        return reply


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    with Server() as server:
        server.replies = [Hub(files)]
        print(f"HF_ENDPOINT={server.url('')}".rstrip("/"), flush=True)
        server.serve_forever()
