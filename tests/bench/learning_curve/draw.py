#!/usr/bin/env python3
"""Curves of training runs as one SVG: a colour a label, a line a run.

    draw.py OUT.svg TITLE FIELD LABEL=RUN[,RUN...] ...

FIELD is of the events `step` in RUN/metrics.jsonl ("reward", "correct"); RUN:FIELD takes another one.
The axis of values begins at 0.
"""
import json
import sys
from xml.sax.saxutils import escape

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 300, 48, 16, 34, 58
COLOURS = ["#1f6feb", "#8b949e", "#d1602f", "#2da44e", "#a371f7"]


def read(run, field):
    run, _, other = run.partition(":")
    points = {}  # of a step the last: a run that went on from a checkpoint did some again
    with open(run + "/metrics.jsonl", encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            value = event.get(other or field)
            if event["event"] == "step" and value is not None:
                points[event["step"]] = value
    return sorted(points.items())


def ticks(most):
    size = next(s for s in (0.05, 0.1, 0.2, 0.25, 0.5, 1, 2, 5, 10, 20, 25, 50, 100, 200) if most / s <= 6)
    return [i * size for i in range(int(most / size) + 1)]


def main():
    if len(sys.argv) < 5:
        sys.exit(__doc__)
    out, title, field = sys.argv[1:4]
    series = []
    for argument in sys.argv[4:]:
        label, _, runs = argument.partition("=")
        series.append((label, [read(run, field) for run in runs.split(",")]))
    points = [p for _, lines in series for line in lines for p in line]
    last, most = max(x for x, _ in points), max(y for _, y in points) * 1.02
    width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(x, y):
        return f"{LEFT + width * x / last:.1f},{TOP + height * (1 - max(y, 0) / most):.1f}"

    svg = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" '
           f'font-size="12"><rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>'
           f'<text x="{LEFT}" y="20" font-size="14">{escape(title)}</text>']
    for y in ticks(most):
        at = place(0, y).split(",")[1]
        svg.append(f'<path d="M{LEFT},{at}h{width}" stroke="#ddd"/>'
                   f'<text x="{LEFT - 6}" y="{float(at) + 4:.1f}" text-anchor="end">{y:g}</text>')
    for x in ticks(last):
        at = place(x, 0).split(",")[0]
        svg.append(f'<text x="{at}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{x:g}</text>')
    svg.append(f'<text x="{WIDTH - RIGHT}" y="{HEIGHT - BOTTOM + 30}" text-anchor="end">step</text>')
    x = LEFT
    for number, (label, lines) in enumerate(series):
        colour = COLOURS[number % len(COLOURS)]
        for line in lines:
            path = " ".join(place(*p) for p in line)
            svg.append(f'<polyline fill="none" stroke="{colour}" stroke-width="1.3" points="{path}"/>')
        svg.append(f'<path d="M{x},{HEIGHT - 14}h18" stroke="{colour}" stroke-width="3"/>'
                   f'<text x="{x + 24}" y="{HEIGHT - 10}">{escape(label)}</text>')
        x += 44 + 7 * len(label)
    svg.append("</svg>")
    with open(out, "w", encoding="utf-8") as file:
        file.write("\n".join(svg) + "\n")


main()
