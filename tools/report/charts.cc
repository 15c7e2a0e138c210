#include "tools/report/charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "agent/text.h"
#include "tools/report/html.h"

namespace kevin {
namespace {

constexpr size_t kColors = 7;
constexpr double kWidth = 520, kHeight = 270, kLeft = 52, kRight = 12, kTop = 10, kBottom = 38;
constexpr size_t kLabelBytes = 32, kRowBytes = 80;  // that fit before a dot plot, above a bar

std::string Text(double x, double y, const std::string& anchor, const std::string& text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>", x, y, anchor,
                     Escaped(text));
}

std::string Line(double x1, double y1, double x2, double y2, const std::string& style) {
  return fmt::format("<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" {}/>", x1, y1, x2, y2,
                     style);
}

std::string Dot(double x, double y, double r, const std::string& color, const std::string& title) {
  return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{}\" fill=\"{}\"><title>{}</title></circle>", x,
                     y, r, color, Escaped(title));
}

std::string Svg(double width, double height, const std::string& label, const std::string& body) {
  return fmt::format("<svg viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" aria-label=\"{}\">{}</svg>\n", width,
                     height, Escaped(label), body);
}

// 1, 2 or 5 times a power of ten, so that about `count` ticks fit.
double NiceStep(double range, int count) {
  const double raw = std::max(range, 1e-9) / count;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (raw <= factor * power) return factor * power;
  }
  return 10 * power;
}

// From values to coordinates.
class Scale {
 public:
  Scale(double low, double high, double from, double to, bool is_log)
      : is_log_(is_log), low_(At(low)), high_(At(high)), from_(from), to_(to) {
    if (high_ - low_ < 1e-12) high_ = low_ + 1;
  }
  double operator()(double value) const {
    return from_ + (At(value) - low_) / (high_ - low_) * (to_ - from_);
  }

 private:
  double At(double value) const { return is_log_ ? std::log2(std::max(value, 1e-6)) : value; }
  bool is_log_;
  double low_, high_, from_, to_;
};

struct Range {
  double low = 1e300, high = -1e300;
  void Add(double value) { low = std::min(low, value), high = std::max(high, value); }
};

// Each sample is drawn as its line is: in the same colour, and dashed where that is dashed.
std::string Legend(const std::vector<ChartSeries>& series) {
  std::string html = "<div class=\"legend\">";
  for (const ChartSeries& one : series) {
    const std::string color = ColorOf(one.color);
    const std::string paint =
        one.is_dashed
            ? fmt::format("repeating-linear-gradient(90deg,{} 0 .3rem,transparent .3rem .5rem)", color)
            : color;
    html += fmt::format("<span><i style=\"background:{}\"></i>{}</span>", paint, Escaped(one.name));
  }
  return html + "</div>";
}

std::string LogTicks(double low, double high, const Scale& x, double top, double bottom) {
  std::string svg;
  for (double tick = std::pow(2, std::ceil(std::log2(low))); tick <= high * 1.0001; tick *= 2) {
    svg += Line(x(tick), top, x(tick), bottom, "class=\"axis\"");
    svg += Text(x(tick), bottom + 14, "middle", fmt::format("{:.3g}x", tick));
  }
  return svg;
}

std::string SeriesSvg(const ChartSeries& one, const ChartOptions& options, const Scale& x, const Scale& y) {
  std::string path, marks;
  for (const ChartPoint& p : one.points) {
    path += fmt::format("{}{:.1f},{:.1f}", path.empty() ? "M" : "L", x(p.x), y(p.y));
    if (p.low < p.high)
      marks += Line(x(p.x), y(p.low), x(p.x), y(p.high),
                    fmt::format("stroke=\"{}\" stroke-width=\"1.2\" opacity=\".6\"", ColorOf(one.color)));
    const std::string value =
        options.is_percent ? fmt::format("{:.1f} %", 100 * p.y) : fmt::format("{:.3g}", p.y);
    if (options.with_dots) {
      marks +=
          Dot(x(p.x), y(p.y), 2.8, ColorOf(one.color), fmt::format("{}: {} at {:.6g}", one.name, value, p.x));
    }
  }
  return fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"2\"{}/>", path,
                     ColorOf(one.color), one.is_dashed ? " stroke-dasharray=\"5 4\"" : "") +
         marks;
}

// An axis over the values, in whole steps.
struct Axis {
  double low = 0, high = 1, step = 0.25;
};

Axis AxisOf(const ChartOptions& options, Range ys) {
  Axis axis;
  const double room = 0.1 * std::max(std::abs(ys.high), 1e-6);
  if (ys.high - ys.low < 1e-6 * room) ys.low -= room, ys.high += room;  // all the same
  if (options.is_percent && options.to_hundred && ys.high <= 1) return axis;
  axis.step = NiceStep(ys.high - ys.low, 5);
  axis.low = std::floor(ys.low / axis.step) * axis.step;
  axis.high = std::ceil(ys.high / axis.step) * axis.step;
  return axis;
}

std::string TickText(double value) {
  return std::abs(value) < 1000 ? fmt::format("{:.3g}", value) : fmt::format("{:.0f}", value);
}

std::string YAxis(const ChartOptions& options, const Axis& axis, const Scale& y) {
  const double right = kWidth - kRight;
  std::string svg;
  for (int i = 0; axis.low + i * axis.step <= axis.high + axis.step * 1e-3; ++i) {
    const double tick = axis.low + i * axis.step;
    const double shown = std::abs(tick) < axis.step * 1e-3 ? 0 : tick;
    svg += Line(kLeft, y(tick), right, y(tick), "class=\"axis\"");
    svg += Text(kLeft - 6, y(tick) + 4, "end",
                options.is_percent ? fmt::format("{:.3g} %", 100 * shown) : TickText(shown));
  }
  if (options.y_mark > axis.low && options.y_mark < axis.high)
    svg += Line(kLeft, y(options.y_mark), right, y(options.y_mark),
                "stroke=\"var(--quiet)\" stroke-dasharray=\"2 3\"");
  return svg;
}

std::string XAxis(const ChartOptions& options, const Range& xs, const Scale& x) {
  const double bottom = kHeight - kBottom;
  std::string svg;
  if (options.is_log2_x) {
    for (double tick = xs.low; tick <= xs.high * 1.0001; tick *= 2)
      svg += Text(x(tick), bottom + 15, "middle", fmt::format("{:.0f}", tick));
  } else {
    const double step = NiceStep(xs.high - xs.low, 8);
    for (double tick = std::ceil(xs.low / step) * step; tick <= xs.high * 1.0001; tick += step)
      svg += Text(x(tick), bottom + 15, "middle", fmt::format("{:.4g}", tick));
  }
  return svg + Text((kLeft + kWidth - kRight) / 2, kHeight - 6, "middle", options.x_label);
}

}  // namespace

std::string ColorOf(size_t color) { return fmt::format("var(--s{})", color % kColors); }

std::string LineChart(const ChartOptions& options, const std::vector<ChartSeries>& series) {
  Range xs, ys;
  if (options.from_zero || options.is_percent) ys.Add(0);
  if (options.is_percent && options.to_hundred) ys.Add(1);
  for (const ChartSeries& one : series) {
    for (const ChartPoint& p : one.points)
      xs.Add(p.x), ys.Add(p.y), ys.Add(std::max(p.high, p.y)), ys.Add(p.low < p.high ? p.low : p.y);
  }
  if (xs.low > xs.high) return "";
  if (options.y_mark > 0) ys.Add(options.y_mark * 1.1);
  const Axis axis = AxisOf(options, ys);
  const Scale x(xs.low, xs.high, kLeft, kWidth - kRight, options.is_log2_x);
  const Scale y(axis.low, axis.high, kHeight - kBottom, kTop, false);
  std::string svg = YAxis(options, axis, y) + XAxis(options, xs, x);
  for (const ChartSeries& one : series) svg += SeriesSvg(one, options, x, y);
  const std::string caption =
      options.y_label.empty() ? options.title : options.title + ": " + options.y_label;
  return "<figure><figcaption>" + Escaped(caption) + "</figcaption>" +
         Svg(kWidth, kHeight, options.title, svg) + Legend(series) + "</figure>\n";
}

std::string DotPlot(const std::string& title, const std::vector<DotRow>& rows,
                    const std::vector<std::string>& legend) {
  constexpr double kRow = 19, kLabels = 210, kPlotWidth = 900;
  if (rows.empty()) return "";
  Range xs;
  xs.Add(0.5), xs.Add(2);
  for (const DotRow& row : rows) {
    for (const DotRow::Dot& dot : row.dots) {
      if (dot.value > 0) xs.Add(std::clamp(dot.low, 1e-3, dot.value)), xs.Add(dot.high), xs.Add(dot.value);
    }
  }
  const double height = kRow * static_cast<double>(rows.size()) + 34, bottom = height - 24;
  const Scale x(xs.low * 0.95, xs.high * 1.05, kLabels, kPlotWidth - 14, true);
  std::string svg = LogTicks(xs.low * 0.95, xs.high * 1.05, x, 4, bottom);
  svg += Line(x(1), 4, x(1), bottom, "stroke=\"var(--quiet)\" stroke-width=\"1.5\"");
  double y = 4 + kRow / 2;
  for (const DotRow& row : rows) {
    svg += fmt::format("<a href=\"#{}\">{}</a>", Escaped(row.link),
                       Text(kLabels - 10, y + 4, "end", Clip(row.label, kLabelBytes)));
    double shift = -2.5 * (static_cast<double>(row.dots.size()) - 1);
    for (const DotRow::Dot& dot : row.dots) {
      if (dot.value > 0) {
        svg += Line(x(dot.low), y + shift, x(dot.high), y + shift,
                    fmt::format("stroke=\"{}\" stroke-width=\"1.6\" opacity=\".7\"", ColorOf(dot.color)));
        svg += Dot(x(dot.value), y + shift, 3.4, ColorOf(dot.color), dot.title);
      } else {
        svg += fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" style=\"fill:{}\">none<title>{}</title></text>",
                           x(xs.low) + 2, y + shift + 4, ColorOf(dot.color), Escaped(dot.title));
      }
      shift += 5;
    }
    y += kRow;
  }
  std::vector<ChartSeries> names;
  for (size_t i = 0; i < legend.size(); ++i) names.push_back({legend[i], i, false, {}});
  return "<figure><figcaption>" + Escaped(title) + "</figcaption>" + Svg(kPlotWidth, height, title, svg) +
         Legend(names) + "</figure>\n";
}

std::string StackedBars(const std::string& title, const std::vector<std::string>& rows,
                        const std::vector<std::vector<BarPart>>& parts) {
  constexpr double kRow = 34;
  const bool has_value = std::any_of(parts.begin(), parts.end(), [](const std::vector<BarPart>& row) {
    return std::any_of(row.begin(), row.end(), [](const BarPart& part) { return part.value > 0; });
  });
  if (!has_value) return "";
  std::string svg;
  std::vector<ChartSeries> names;
  double y = 6;
  for (size_t r = 0; r < rows.size(); ++r) {
    double total = 0, at = 0;
    for (const BarPart& part : parts[r]) total += part.value;
    svg += Text(0, y + 8, "start", Clip(rows[r], kRowBytes) + (total > 0 ? "" : " (nothing)"));
    for (size_t i = 0; i < parts[r].size(); ++i) {
      const BarPart& part = parts[r][i];
      if (r == 0) names.push_back({part.name, i, false, {}});
      if (total <= 0 || part.value <= 0) continue;
      const double width = part.value / total * kWidth;
      svg += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"14\" fill=\"{}\"><title>{}: {:.1f} "
          "%</title></rect>",
          at, y + 12, std::max(width - 1, 0.5), ColorOf(i), Escaped(part.name), 100 * part.value / total);
      at += width;
    }
    y += kRow;
  }
  return "<figure><figcaption>" + Escaped(title) + "</figcaption>" + Svg(kWidth, y + 4, title, svg) +
         Legend(names) + "</figure>\n";
}

std::string Ladder(const std::vector<LadderStep>& steps, size_t color) {
  constexpr double kLadderHeight = 150, kFailed = 14;
  if (steps.empty()) return "";
  Range ys;
  ys.Add(0.8), ys.Add(1.25);
  for (const LadderStep& s : steps) {
    if (s.is_measured) ys.Add(std::clamp(s.low, 0.02, s.value)), ys.Add(s.high);
  }
  const double wide = 70 + 34 * static_cast<double>(steps.size());
  const double width = std::clamp(wide, 260.0, 900.0), bottom = kLadderHeight - 22;
  const Scale x(0, static_cast<double>(steps.size()), kLeft, width - 8, false);
  const Scale y(ys.low * 0.97, ys.high * 1.03, bottom - kFailed, 8, true);
  std::string svg;
  // Halves and doubles, and steps between them where the speed-ups are close together.
  const double factor = ys.high / ys.low < 4 ? std::sqrt(std::sqrt(2)) : 2;
  for (int n = -40; n <= 40; ++n) {
    const double tick = std::pow(factor, n);
    if (tick < ys.low * 0.97 || tick > ys.high * 1.03) continue;
    svg += Line(kLeft, y(tick), width - 8, y(tick),
                n == 0 ? "stroke=\"var(--quiet)\" stroke-dasharray=\"2 3\"" : "class=\"axis\"");
    svg += Text(kLeft - 6, y(tick) + 4, "end", fmt::format("{:.3g}x", tick));
  }
  std::string path;
  double best = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    const LadderStep& s = steps[i];
    const double at = x(static_cast<double>(i) + 0.5);
    if (s.is_measured) {
      svg += Line(at, y(s.low), at, y(s.high),
                  fmt::format("stroke=\"{}\" stroke-width=\"1.6\"", ColorOf(color)));
      svg += Dot(at, y(s.value), 4, ColorOf(color), s.title);
      if (path.empty()) path = fmt::format("M{:.1f},{:.1f}", at, y(s.value));
      if (s.value > best) best = s.value, path += fmt::format("H{:.1f}V{:.1f}", at, y(best));
    } else {
      svg += fmt::format(
          "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"middle\" style=\"fill:var(--bad)\">×<title>{}"
          "</title></text>",
          at, bottom - 1, Escaped(s.title));
    }
    if (best > 0) path += fmt::format("H{:.1f}", at);
    if (steps.size() <= 40 || i % 5 == 0)
      svg += Text(at, kLadderHeight - 6, "middle", s.turn == 0 ? "start" : std::to_string(s.turn));
  }
  svg += fmt::format("<path d=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.2\" opacity=\".5\"/>", path,
                     ColorOf(color));
  return fmt::format("<div style=\"max-width:{:.0f}px\">", width) +
         Svg(width, kLadderHeight, "speed-up turn by turn", svg) + "</div>";
}

std::string SampleStrip(const std::vector<Sample>& samples) {
  constexpr double kStripWidth = 700, kStripHeight = 120;
  Range ys;
  for (const Sample& s : samples) {
    if (s.calls > 0) ys.Add(s.total_us / s.calls);
  }
  if (ys.low > ys.high) return "";
  const Scale x(0, static_cast<double>(samples.size()), kLeft, kStripWidth - 8, false);
  const Scale y(ys.low, ys.high, kStripHeight - 20, 8, false);
  std::string svg = Text(kLeft - 6, y(ys.low) + 4, "end", fmt::format("{:.4g}", ys.low)) +
                    Text(kLeft - 6, y(ys.high) + 4, "end", fmt::format("{:.4g}", ys.high));
  const std::vector<std::string> sides = {"reference", "candidate", "start"};
  std::vector<ChartSeries> names;
  for (size_t i = 0; i < samples.size(); ++i) {
    const Sample& s = samples[i];
    const double at = x(static_cast<double>(i));
    if (i > 0 && s.process != samples[i - 1].process)
      svg += Line(at, 4, at, kStripHeight - 18, "class=\"axis\"");
    if (s.calls == 0) continue;
    const auto color = static_cast<size_t>(std::find(sides.begin(), sides.end(), s.side) - sides.begin());
    const bool is_known =
        std::any_of(names.begin(), names.end(), [&](const auto& n) { return n.name == s.side; });
    if (!is_known) names.push_back({s.side, color, false, {}});
    svg += Dot(at, y(s.total_us / s.calls), 2, ColorOf(color),
               fmt::format("{}, {}, pair {} in process {}: {:.4g} us", s.side, s.phase, s.pair, s.process,
                           s.total_us / s.calls));
  }
  svg += Text(kStripWidth / 2, kStripHeight - 4, "middle",
              fmt::format("us a call, {} timed halves in the order of measuring", samples.size()));
  return "<div style=\"max-width:700px\">" + Svg(kStripWidth, kStripHeight, "timing samples", svg) +
         Legend(names) + "</div>";
}

}  // namespace kevin
