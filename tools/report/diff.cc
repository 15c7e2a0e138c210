#include "tools/report/diff.h"

#include <algorithm>

#include "agent/text.h"

namespace kevin {
namespace {

using Kind = DiffLine::Kind;
using Lines = std::vector<std::string_view>;
constexpr int kMostChanges = 2000;

void Push(std::vector<DiffLine>* out, Kind kind, std::string_view line) {
  out->push_back({kind, std::string(line)});
}

std::vector<DiffLine> Replaced(const Lines& a, const Lines& b) {
  std::vector<DiffLine> all;
  for (const std::string_view line : a) Push(&all, Kind::kRemoved, line);
  for (const std::string_view line : b) Push(&all, Kind::kAdded, line);
  return all;
}

// Every line of both texts, in order. Walks back over the furthest reaching points of each number of changes.
std::vector<DiffLine> AllLines(const Lines& a, const Lines& b) {
  const int n = static_cast<int>(a.size()), m = static_cast<int>(b.size());
  const int limit = std::min(n + m, kMostChanges), offset = limit + 1;
  std::vector<int> reach(static_cast<size_t>(2 * limit + 3), 0);
  std::vector<std::vector<int>> history;
  const auto at = [&](std::vector<int>& v, int k) -> int& { return v[static_cast<size_t>(k + offset)]; };
  bool is_found = false;
  for (int d = 0; d <= limit && !is_found; ++d) {
    history.push_back(reach);
    for (int k = -d; k <= d && !is_found; k += 2) {
      const bool down = k == -d || (k != d && at(reach, k - 1) < at(reach, k + 1));
      int x = down ? at(reach, k + 1) : at(reach, k - 1) + 1;
      while (x < n && x - k < m && x - k >= 0 && a[static_cast<size_t>(x)] == b[static_cast<size_t>(x - k)])
        ++x;
      at(reach, k) = x;
      is_found = x >= n && x - k >= m;
    }
  }
  if (!is_found) return Replaced(a, b);
  std::vector<DiffLine> backwards;
  int x = n, y = m;
  for (int d = static_cast<int>(history.size()) - 1; d >= 0; --d) {
    std::vector<int>& v = history[static_cast<size_t>(d)];
    const int k = x - y;
    const bool down = k == -d || (k != d && at(v, k - 1) < at(v, k + 1));
    const int from_k = down ? k + 1 : k - 1, from_x = at(v, from_k), from_y = from_x - from_k;
    for (; x > from_x && y > from_y; --x, --y) Push(&backwards, Kind::kSame, a[static_cast<size_t>(x - 1)]);
    if (d == 0) break;
    if (down) {
      Push(&backwards, Kind::kAdded, b[static_cast<size_t>(--y)]);
    } else {
      Push(&backwards, Kind::kRemoved, a[static_cast<size_t>(--x)]);
    }
  }
  std::reverse(backwards.begin(), backwards.end());
  return backwards;
}

}  // namespace

std::vector<DiffLine> DiffLines(std::string_view before, std::string_view after, size_t context) {
  const std::vector<DiffLine> all = AllLines(SplitLines(before), SplitLines(after));
  std::vector<bool> is_shown(all.size(), false);
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].kind == Kind::kSame) continue;
    for (size_t j = i - std::min(i, context); j < std::min(all.size(), i + context + 1); ++j)
      is_shown[j] = true;
  }
  std::vector<DiffLine> shown;
  int line = 1;  // of `after`
  for (size_t i = 0; i < all.size(); ++i) {
    if (is_shown[i]) {
      if (i > 0 && !is_shown[i - 1]) shown.push_back({Kind::kGap, "@@ line " + std::to_string(line) + " @@"});
      shown.push_back(all[i]);
    }
    line += all[i].kind != Kind::kRemoved;
  }
  return shown;
}

}  // namespace kevin
