#!/usr/bin/env bash
# The report's page in a real browser: screenshot_test.sh KEVIN DATABASE FOLDER. The page must be drawn (its picture is
# not one colour), be as wide as its window, and ask for nothing but itself.
set -euo pipefail
kevin=$1 database=$2 folder=$3
for browser in chromium chromium-browser google-chrome; do
  command -v "$browser" >/dev/null && break
  browser=
done
if [[ -z ${browser:-} ]]; then
  echo "Skipped: no chromium on this machine"
  exit 0
fi
command -v python3 >/dev/null || { echo "Skipped: no python3 to look at the picture"; exit 0; }
rm -rf "$folder" && mkdir -p "$folder"
cp "$database" "$folder/records.db"
"$kevin" report --accept-old-verdicts --db "$folder/records.db" --html "$folder/report.html" >/dev/null
sed 's/<details/<details open/g' "$folder/report.html" >"$folder/open.html"

headless() {  # PAGE, further options
  local page=$1
  shift
  timeout 120 "$browser" --headless=new --no-sandbox --disable-gpu --hide-scrollbars --no-first-run \
    --user-data-dir="$folder/profile" --window-size=1280,3000 "$@" "file://$page" 2>"$folder/browser.log"
}
headless "$folder/open.html" --screenshot="$folder/page.png" >/dev/null || { tail -5 "$folder/browser.log"; exit 1; }
headless "$folder/report.html" --dump-dom >"$folder/dom.html"
grep -q '<svg' "$folder/dom.html" || { echo "the browser saw no plot"; exit 1; }

python3 - "$folder/page.png" <<'PY'
import struct, sys, zlib
data = open(sys.argv[1], "rb").read()
assert data[:8] == b"\x89PNG\r\n\x1a\n", "no PNG"
at, body = 8, b""
while at < len(data):
    size, kind = struct.unpack(">I4s", data[at:at + 8])
    if kind == b"IHDR": width, height, depth, color = struct.unpack(">IIBB", data[at + 8:at + 18])
    if kind == b"IDAT": body += data[at + 8:at + 8 + size]
    at += 12 + size
channels = {2: 3, 6: 4}[color]
raw, stride = zlib.decompress(body), width * channels
previous, rows = bytearray(stride), []
for y in range(height):
    kind, line = raw[y * (stride + 1)], bytearray(raw[y * (stride + 1) + 1:(y + 1) * (stride + 1)])
    for x in range(stride):
        a = line[x - channels] if x >= channels else 0
        b, c = previous[x], previous[x - channels] if x >= channels else 0
        if kind == 1: add = a
        elif kind == 2: add = b
        elif kind == 3: add = (a + b) // 2
        elif kind == 4:
            p = a + b - c
            add = min((abs(p - a), 0, a), (abs(p - b), 1, b), (abs(p - c), 2, c))[2]
        else: add = 0
        line[x] = (line[x] + add) & 255
    rows.append(line)
    previous = line
paper = bytes(rows[0][:channels])
inked = [sum(1 for x in range(0, stride, channels) if bytes(row[x:x + channels]) != paper) for row in rows[::8]]
share = sum(inked) / (len(inked) * width)
colors = {bytes(row[x:x + 3]) for row in rows[::8] for x in range(0, stride, channels * 4)}
print(f"{width} x {height}, {100 * share:.1f} % drawn on, {len(colors)} colours")
assert width == 1280 and 0.03 < share < 0.97 and len(colors) > 20, "the page is not drawn"
assert not any(bytes(row[-channels:]) != paper for row in rows), "something reaches over the page's edge"
PY
