#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Draws a training log as a small SVG that reads on light and on dark ground.

usage: scripts/train/loss_svg.py training_log.csv loss.svg

Bits per byte over tokens where the log is of a target, the shares of right draft chains where it is of a drafter;
a log with both gives two panels. Axes and text are mid-grey; lines differ in hue and in dash.
"""
import csv
import math
import pathlib
import sys

WIDTH, PANEL, LEFT, RIGHT, TOP, BOTTOM = 640, 250, 54, 150, 26, 36
GREY = "#808080"
LINES = [("train_bits", "training", "#8a8a8a", ""), ("heldout_code", "held-out code", "#3b82d0", ""),
         ("heldout_prose", "held-out prose", "#d9822b", "6 3"), ("heldout_structured", "held-out structured", "#3f9d5a", "2 3")]
CHAINS = [(f"chain_{step}", f"first {step} right" if step > 1 else "first right", hue, dash) for step, hue, dash in
          [(1, "#3b82d0", ""), (2, "#d9822b", "6 3"), (3, "#3f9d5a", "2 3"), (4, "#a05cc0", "8 2 2 2"), (5, "#8a8a8a", "")]]


def series(rows, key):
    return [(int(row["tokens"]) / 1e6, float(row[key])) for row in rows if row.get(key)]


def ticks(low, high, count=5):
    """Round numbers from low to high."""
    raw = (high - low) / count
    power = 10 ** math.floor(math.log10(raw))
    step = next(power * m for m in (1, 2, 5, 10) if raw <= power * m)
    first = math.ceil(low / step) * step
    return [first + i * step for i in range(int((high - first) / step + 1e-9) + 1)]


def panel(rows, lines, title, top, low, high):
    """SVG elements of one diagram whose upper edge is at `top`."""
    known = [(label, hue, dash, series(rows, key)) for key, label, hue, dash in lines]
    known = [entry for entry in known if entry[3]]
    longest = max(x for entry in known for x, _ in entry[3])
    height = PANEL - TOP - BOTTOM

    def place(x, y):
        share = (min(max(y, low), high) - low) / (high - low)
        return LEFT + x / longest * (WIDTH - LEFT - RIGHT), top + TOP + height * (1 - share)

    out = [f'<text x="{LEFT}" y="{top + 15}" font-weight="bold">{title}</text>']
    for value in ticks(low, high):
        _, y = place(0, value)
        out.append(f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="{GREY}" stroke-opacity="0.35"/>')
        out.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for value in ticks(0, longest):
        x, _ = place(value, low)
        out.append(f'<text x="{x:.1f}" y="{top + PANEL - BOTTOM + 15}" text-anchor="middle">{value:g}</text>')
    out.append(f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{top + PANEL - 6}" text-anchor="middle">million tokens</text>')
    for index, (label, hue, dash, points) in enumerate(known):
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in points))
        style = f'stroke="{hue}" stroke-width="1.6" fill="none"' + (f' stroke-dasharray="{dash}"' if dash else "")
        out.append(f'<polyline points="{path}" {style}/>')
        y = top + TOP + 12 + 17 * index
        out.append(f'<path d="M{WIDTH - RIGHT + 8} {y - 4}h18" {style}/>')
        out.append(f'<text x="{WIDTH - RIGHT + 31}" y="{y}">{label}</text>')
    return out


def smoothed(rows, key, target=120):
    """The rows thinned to about `target`, `key` averaged over what is dropped."""
    step = max(1, len(rows) // target)
    thin = []
    for start in range(0, len(rows), step):
        part = rows[start:start + step]
        merged = dict(part[-1])
        values = [float(row[key]) for row in part if row.get(key)]
        if values:
            merged[key] = str(sum(values) / len(values))
        thin.append(merged)
    return thin


def write_loss_svg(log, output):
    with open(log, newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    target = [row for row in rows if row["phase"] == "target"]
    drafter = [row for row in rows if row["phase"] == "drafter"]
    parts, top = [], 0
    if target:
        held = [row for row in target if row["heldout_code"]]
        merged = sorted(smoothed(target, "train_bits") + held, key=lambda row: int(row["tokens"]))
        parts += panel(merged, LINES, "bits per byte", top, 0.0, 3.0)
        top += PANEL
    if drafter:
        thin = drafter[::max(1, len(drafter) // 120)]
        parts += panel(thin, CHAINS, "share of draft chains that the target's greedy choice confirms", top, 0.0, 1.0)
        top += PANEL
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" viewBox="0 0 {WIDTH} {top}" '
            f'font-family="sans-serif" font-size="11" fill="{GREY}">')
    pathlib.Path(output).write_text("\n".join([head, *parts, "</svg>", ""]), encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    write_loss_svg(sys.argv[1], sys.argv[2])
