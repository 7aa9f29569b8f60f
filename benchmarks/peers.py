"""Environments of peers: made once, cached in `.cache/peers`.

Peers need other versions of packages that evenhand uses, so they are never imported here; scripts
run in the peer's own interpreter.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

__all__ = ["PEERS", "PeerUnavailableError", "peer_python"]

_CACHE = Path(__file__).parents[1] / ".cache" / "peers"

PEERS = {
    "tritonclient": ("tritonclient[grpc,http]==2.73.0",),
    "captum": ("torch==2.13.0", "captum==0.9.0"),
    "captum-serving": (
        "torch==2.13.0",
        "captum==0.9.0",
        "grpcio==1.85.1",
        "protobuf==7.36.2",
        "uvloop==0.23.0",
    ),
    # Clemont passes row ids as a list, which later versions of faiss reject.
    "clemont": ("clemont==0.1.0", "faiss-cpu==1.11.0"),
    "mlserver": ("torch==2.13.0", "mlserver==1.7.1"),
    "kserve": ("torch==2.13.0", "kserve==0.21.0"),
    "schemathesis": ("schemathesis==4.32.5",),
    "moto": ("moto[server]==5.2.5",),
}


class PeerUnavailableError(Exception):
    """A peer's environment is not installed and could not be made."""


def peer_python(name: str, *, install: bool = True) -> Path:
    """The interpreter of a peer's environment, which is made if it is missing.

    Args:
        name: Name of the peer in `PEERS`.
        install: Whether to make a missing environment.

    Raises:
        PeerUnavailableError: The packages are not installed, or cannot be installed.
    """
    requirements = PEERS[name]
    key = hashlib.sha256("\n".join([sys.version, *requirements]).encode()).hexdigest()[:12]
    home = _CACHE / f"{name}-{key}"
    if not home.exists():
        if not install:
            raise PeerUnavailableError(f"skipped: {name} not installed")
        _make(home, name, requirements)
    return home / "bin" / "python"


def _make(home: Path, name: str, requirements: tuple[str, ...]) -> None:
    """Install into a temporary directory and rename it, so that a partial install is never used."""
    _CACHE.mkdir(parents=True, exist_ok=True)
    print(f"making an environment for {name}", file=sys.stderr, flush=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=_CACHE))
    try:
        venv.create(draft, with_pip=True, symlinks=True)
        command = [str(draft / "bin" / "python"), "-m", "pip", "install", "--quiet", *requirements]
        done = subprocess.run(command, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise PeerUnavailableError(f"{name}: {done.stderr.strip().splitlines()[-1]}")
        # An interpreter locates its environment by its own path, so the directory may be renamed.
        draft.replace(home)
    except OSError:
        # Another process made the same environment in the meantime.
        if not home.exists():
            raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
