"""How the figures of the examples look, and where they go."""

from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

BLUE, ORANGE, GREEN, GREY = "#0072B2", "#D55E00", "#009E73", "#5F6368"  # told apart by colour-blind readers too
LOOKS = {
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.w_pad": 0.1,
    "font.size": 10,
    "legend.frameon": False,
    "savefig.dpi": 132,
}
plt.rcParams.update(LOOKS)
OUT = Path("out")


def save(figure, name: str) -> None:
    """Into `out/`, and says so."""
    OUT.mkdir(exist_ok=True)
    figure.savefig(OUT / f"{name}.png")
    plt.close(figure)
    print(f"Figure: {OUT / name}.png")
