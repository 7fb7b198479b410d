"""What the measurements were made with."""

import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("lagrax", "jax", "jaxlib", "equinox", "diffrax", "torch", "torchdde", "jitcdde", "numpy")


def describe() -> dict[str, Any]:
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
    }


def sentence(machine: dict[str, Any]) -> str:
    versions = machine["versions"]
    names = ", ".join(f"{name} {versions[name]}" for name in ("jax", "diffrax", "torchdde", "jitcdde"))
    cpu = f"{machine['cores']} cores of {machine['cpu']} (load average {machine['load']:.1f} at the start)"
    return f"{machine['date'][:10]}, {cpu}, Python {machine['python']}, {names}."


def _cpu() -> str:
    info = Path("/proc/cpuinfo")
    if info.exists():
        for line in info.read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
