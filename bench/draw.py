#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws the tables of a file in bench/results as an SVG picture.

usage: draw.py ratios|roofline|bandwidth RESULTS.md[#TITLE] PICTURE.svg

ratios     TFLOP/s of each shape, divided by cuDNN's; tables of bench/cuda/beside_torch.py
roofline   the same tables over operations per byte, under the ceilings measured in the same run
bandwidth  bus bandwidth over size beside NCCL's; tables with the columns size, "ours, GB/s" and "NCCL, GB/s"

A table's title is the last line of text or heading above it; with #TITLE only tables whose titles contain it are
drawn. Needs matplotlib.
"""
import pathlib
import re
import statistics
import sys

if set(sys.argv[1:]) & {"-h", "--help"}:
    sys.exit(print(__doc__.strip()))
try:
    import matplotlib
except ImportError:
    sys.exit("draw.py: there is no matplotlib; pip install matplotlib")

matplotlib.use("svg")
matplotlib.rcParams.update(
    {"svg.hashsalt": "cpattnd", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False}
)
from matplotlib import pyplot

SHAPE = "b, h, hk, s, d_qk, d_v"
COLORS = {"ours": "#1f6f8b", "cuDNN": "#999999", "FA2": "#d9a441", "NCCL": "#999999"}
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


# ---- tables ----------------------------------------------------------------------------------------


def tables(path):
    """(title, rows) of each table; a row is a dictionary by column."""
    path, _, wanted = path.partition("#")
    found, title, columns, rows = [], "", None, []
    for line in [*pathlib.Path(path).read_text().splitlines(), ""]:
        if line.startswith("|"):
            cells = [c.strip() for c in line.strip("| \n").split("|")]
            if columns is None:
                columns = cells
            elif not set(line) <= set("|-: "):
                rows.append(dict(zip(columns, cells)))
            continue
        if columns is not None:
            found.append((title, rows))
            columns, rows = None, []
        if line.strip():
            title = line.strip("#:` ").removesuffix(".")
    return [(title, rows) for title, rows in found if wanted in title]


def number(cell):
    """The mean where a cell has several; None where it has none."""
    values = [float(v) for v in re.findall(r"[\d.]+", cell or "")]
    return statistics.fmean(values) if values else None


def shapes(path):
    wanted = [(t, [r for r in rows if r[SHAPE].count(",") == 5 and number(r.get("cuDNN"))])
              for t, rows in tables(path) if rows and SHAPE in rows[0]]
    wanted = [(t, rows) for t, rows in wanted if rows and "ours" in rows[0]]
    if not wanted:
        sys.exit(f'{path}: no table has the columns "{SHAPE}", "ours" and "cuDNN"')
    return wanted


# ---- pictures --------------------------------------------------------------------------------------


def ratios(path):
    wanted = shapes(path)
    heights = [len(rows) for _, rows in wanted]
    figure, axes = pyplot.subplots(
        len(wanted), 1, figsize=(7.5, 0.27 * sum(heights) + 0.9 * len(wanted)), squeeze=False,
        height_ratios=heights, sharex=True,
    )
    for (title, rows), axis in zip(wanted, axes[:, 0]):
        names = [n for n in ("ours", "FA2") if n in rows[0]]
        for i, name in enumerate(names):
            places = [r + (i - (len(names) - 1) / 2) * 0.38 for r in range(len(rows))]
            values = [(number(r[name]) or 0) / number(r["cuDNN"]) for r in rows]
            axis.barh(places, values, 0.36, color=COLORS[name], label=name)
            if name == "ours":
                for place, value in zip(places, values):
                    axis.text(value + 0.01, place, f"{value:.2f}", va="center", fontsize=7)
        axis.axvline(1, color=COLORS["cuDNN"], label="cuDNN")
        axis.set_yticks(range(len(rows)), [f"{r[SHAPE]}  {r['mask']}" for r in rows], fontsize=7)
        axis.set_title(title, loc="left")
        axis.invert_yaxis()
    axes[-1, 0].legend(loc="upper right", frameon=False, fontsize=7, ncols=3, bbox_to_anchor=(1, -0.12))
    axes[-1, 0].set_xlabel("TFLOP/s ÷ cuDNN's in the same run", loc="left")
    return figure


def intensity(title, row):
    """Operations per byte of inputs and results, each moved once, and TFLOP/s."""
    b, h, hk, s, d_qk, d_v = map(int, row[SHAPE].split(","))
    backward = not title.startswith("forward")
    work = 2 * b * h * s * s * (d_qk + d_v) * (2.5 if backward else 1) / (2 if row["mask"] == "causal" else 1)
    elements = b * s * (h * (d_qk + d_v) + hk * (d_qk + d_v))
    return work / (2 * elements * (2 if backward else 1)), number(row["ours"]), number(row["cuDNN"])


def roofline(path):
    text = pathlib.Path(path.partition("#")[0]).read_text()
    ceilings = re.search(r"ceilings: ([\d.]+) TFLOP/s, ([\d.]+) TB/s", text)
    if not ceilings:
        sys.exit(f'{path}: there is no line "ceilings: N TFLOP/s, M TB/s"')
    top, memory = map(float, ceilings.groups())
    figure, axis = pyplot.subplots(figsize=(7.5, 4.2))
    knee = top / memory
    axis.plot([knee / 4, knee, 50000], [top / 4, top, top], color="#333333", linewidth=1)
    axis.text(knee, top * 1.03, f"{top:.0f} TFLOP/s of a matrix product, {memory:.1f} TB/s of a copy", fontsize=8)
    marks = {"forward": "o", "backward": "s", "ordered": "^"}
    for title, rows in shapes(path):
        kind = title.split()[0].lower()
        points = [intensity(kind, r) for r in rows]
        for i, name in ((2, "cuDNN"), (1, "ours")):
            axis.scatter(
                [p[0] for p in points if p[i]], [p[i] for p in points if p[i]], s=18, marker=marks.get(kind, "d"),
                color=COLORS[name], label=f"{name}, {kind}", facecolors="none" if name == "cuDNN" else None,
            )
    axis.set_xscale("log")
    axis.set_yscale("log")
    axis.set_yticks([200, 300, 400, 500, 600, 800], ["200", "300", "400", "500", "600", "800"])
    axis.minorticks_off()
    axis.set_xlabel("operations per byte of inputs and results")
    axis.set_ylabel("TFLOP/s")
    axis.set_ylim(top / 4, top * 1.2)
    axis.legend(frameon=False, fontsize=7, ncols=3, loc="lower right")
    return figure


def size_of(cell):
    value, unit = cell.split()
    return float(value) * UNITS[unit]


def bandwidth(path):
    columns = [f"{name}, GB/s" for name in ("ours", "NCCL")]
    wanted = [(t, rows) for t, rows in tables(path) if rows and all(c in rows[0] for c in columns)]
    if not wanted:
        sys.exit(f"{path}: no table has the columns size, {' and '.join(columns)}")
    figure, axes = pyplot.subplots(1, len(wanted), figsize=(3.1 * len(wanted), 3), squeeze=False, sharey=True)
    for (title, rows), axis in zip(wanted, axes[0]):
        sizes = [size_of(r["size"]) for r in rows]
        for column in columns:
            name = column.split(",")[0]
            axis.plot(sizes, [number(r[column]) for r in rows], marker="o", markersize=3, color=COLORS[name], label=name)
        axis.set_xscale("log", base=2)
        axis.set_xticks([1 << 10, 1 << 20, 1 << 30], ["1 KiB", "1 MiB", "1 GiB"])
        axis.set_title(title, loc="left")
    axes[0, 0].set_ylabel("bus bandwidth, GB/s")
    axes[0, 0].legend(frameon=False)
    return figure


def main():
    pictures = {"ratios": ratios, "roofline": roofline, "bandwidth": bandwidth}
    if len(sys.argv) != 4 or sys.argv[1] not in pictures:
        sys.exit(__doc__.strip())
    if not sys.argv[3].endswith(".svg"):
        sys.exit(f"draw.py: the picture is {sys.argv[3]}; expected is a name that ends with .svg")
    try:
        figure = pictures[sys.argv[1]](sys.argv[2])
        figure.tight_layout()
        figure.savefig(sys.argv[3], format="svg", metadata={"Date": None, "Creator": None})
    except UnicodeDecodeError:
        sys.exit(f"draw.py: {sys.argv[2]}: it is not a text file")
    except OSError as error:
        sys.exit(f"draw.py: {error.filename or sys.argv[3]}: {error.strerror}")


if __name__ == "__main__":
    main()
