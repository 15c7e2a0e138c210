#include "env/diagnosis/hot_loop.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstdint>
#include <string_view>
#include <utility>

namespace kevin {
namespace {

constexpr size_t kMostInstructions = 400'000, kMostText = 72;

struct Instruction {
  uint64_t address = 0;
  std::string mnemonic, operands;
  std::optional<uint64_t> target;  // of a jump
  int line = 0;                    // of the candidate's text; 0: of another file
  int function = 0;
};

bool Starts(std::string_view text, std::string_view with) { return text.substr(0, with.size()) == with; }
bool Has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

std::optional<uint64_t> Hex(std::string_view text, size_t* length) {
  uint64_t value = 0;
  const auto read = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (read.ec != std::errc()) return std::nullopt;
  *length = static_cast<size_t>(read.ptr - text.data());
  return value;
}

// Without names of symbols and comments, in the characters of operands.
std::string CleanOperands(std::string_view text) {
  std::string clean;
  for (const char c : text.substr(0, text.find_first_of("<#"))) {
    const bool is_known = std::isalnum(static_cast<unsigned char>(c)) != 0 ||
                          std::string_view(",[]+*-:{} ").find(c) != std::string_view::npos;
    if (is_known) clean += c;
  }
  while (!clean.empty() && clean.back() == ' ') clean.pop_back();
  return clean.substr(0, kMostText);
}

// "    11ea:\tmov    rax,r12"
std::optional<Instruction> ReadInstruction(std::string_view line) {
  const size_t first = line.find_first_not_of(' ');
  if (first == 0 || first == std::string_view::npos) return std::nullopt;
  line.remove_prefix(first);
  size_t length = 0;
  const auto address = Hex(line, &length);
  if (!address || line.substr(length, 1) != ":") return std::nullopt;
  const size_t code = line.find_first_not_of(" \t", length + 1);
  if (code == std::string_view::npos) return std::nullopt;
  std::string_view rest = line.substr(code);
  Instruction instruction;
  instruction.address = *address;
  const size_t end = std::min(rest.find_first_of(" \t"), rest.size());
  for (const char c : rest.substr(0, end)) {
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) return std::nullopt;
    instruction.mnemonic += c;
  }
  rest.remove_prefix(end);
  rest.remove_prefix(std::min(rest.find_first_not_of(" \t"), rest.size()));
  if (instruction.mnemonic[0] == 'j') instruction.target = Hex(rest, &length);
  instruction.operands = instruction.target ? "" : CleanOperands(rest);
  return instruction;
}

// "/kevin-work/candidate.cpp:12 (discriminator 3)": 12; 0 for lines of other files; nothing for other lines.
std::optional<int> ReadLine(std::string_view line, const std::string& source_name, int lines) {
  const std::string_view path = line.substr(0, line.rfind(" (discriminator"));
  const size_t colon = path.rfind(':');
  if (colon == std::string_view::npos || colon + 1 >= path.size()) return std::nullopt;
  int number = 0;
  const auto read = std::from_chars(path.data() + colon + 1, path.data() + path.size(), number);
  if (read.ec != std::errc() || read.ptr != path.data() + path.size()) return std::nullopt;
  const std::string_view file = path.substr(0, colon);
  const bool is_own = file.size() > source_name.size() &&
                      Starts(file.substr(file.rfind('/') + 1), source_name) &&
                      file.size() - file.rfind('/') - 1 == source_name.size();
  return is_own && number <= lines ? number : 0;
}

std::vector<Instruction> Read(const std::string& disassembly, const std::string& source_name, int lines) {
  std::vector<Instruction> all;
  int line = 0, function = 0;
  for (size_t at = 0; at < disassembly.size() && all.size() < kMostInstructions;) {
    const size_t end = std::min(disassembly.find('\n', at), disassembly.size());
    const std::string_view text(disassembly.data() + at, end - at);
    at = end + 1;
    if (auto instruction = ReadInstruction(text)) {
      instruction->line = line;
      instruction->function = function;
      all.push_back(std::move(*instruction));
    } else if (Starts(text, "0000")) {  // "0000000000001140 <launch>:"
      ++function;
      line = 0;
    } else if (const auto read = ReadLine(text, source_name, lines)) {
      line = *read;
    }
  }
  return all;
}

struct Range {
  size_t first = 0, last = 0;  // positions of its instructions
  int samples = 0;
};

// From a jump backwards to its target, in one function.
std::vector<Range> Loops(const std::vector<Instruction>& code) {
  std::vector<Range> loops;
  for (size_t i = 0; i < code.size(); ++i) {
    if (!code[i].target || *code[i].target > code[i].address) continue;
    const auto target = std::lower_bound(
        code.begin(), code.end(), *code[i].target,
        [](const Instruction& instruction, uint64_t address) { return instruction.address < address; });
    if (target == code.end() || target->address != *code[i].target || target->function != code[i].function)
      continue;
    loops.push_back({static_cast<size_t>(target - code.begin()), i, 0});
  }
  return loops;
}

// Loops that contain no other one. Each loop ends at a jump of its own.
std::vector<Range> Innermost(std::vector<Range> loops) {
  std::sort(loops.begin(), loops.end(), [](const Range& a, const Range& b) {
    return std::pair(b.first, a.last) < std::pair(a.first, b.last);
  });
  std::vector<Range> innermost;
  size_t least_last = SIZE_MAX;  // of the loops that begin at the same place or behind it
  for (const Range& loop : loops) {
    if (loop.last < least_last) innermost.push_back(loop);
    least_last = std::min(least_last, loop.last);
  }
  std::reverse(innermost.begin(), innermost.end());
  return innermost;
}

size_t LengthOf(const Range& loop) { return loop.last - loop.first; }

Range LongestOf(const std::vector<Range>& loops) {
  return *std::max_element(loops.begin(), loops.end(),
                           [](const Range& a, const Range& b) { return LengthOf(a) < LengthOf(b); });
}

// The shortest one with half of the samples of the most sampled one, which may be an outer loop of it.
Range HottestOf(const std::vector<Range>& loops, int most) {
  Range hottest;
  for (const Range& loop : loops) {
    if (loop.samples * 2 >= most && (hottest.samples == 0 || LengthOf(loop) < LengthOf(hottest)))
      hottest = loop;
  }
  return hottest;
}

void CountSamples(const std::vector<Instruction>& code, const AddressSamples& samples,
                  std::vector<Range>* loops) {
  std::vector<uint64_t> addresses;
  std::vector<int> before = {0};  // samples at lower addresses
  for (const auto& [address, count] : samples) {
    addresses.push_back(address);
    before.push_back(before.back() + count);
  }
  for (Range& loop : *loops) {
    const auto first = std::lower_bound(addresses.begin(), addresses.end(), code[loop.first].address);
    const auto end = std::upper_bound(first, addresses.end(), code[loop.last].address);
    loop.samples = before[static_cast<size_t>(end - addresses.begin())] -
                   before[static_cast<size_t>(first - addresses.begin())];
  }
}

bool IsPrefetch(const std::string& mnemonic) { return Starts(mnemonic, "prefetch"); }

// Stores write their first operand; comparisons and jumps only read it.
void CountMemory(const Instruction& i, HotLoop* loop) {
  const size_t bracket = i.operands.find('[');
  if (bracket == std::string::npos || Starts(i.mnemonic, "lea") || Starts(i.mnemonic, "nop") ||
      IsPrefetch(i.mnemonic))
    return;
  const std::string_view address = std::string_view(i.operands).substr(bracket);
  if (Starts(address, "[rsp") || Starts(address, "[rbp-")) {
    ++loop->stack;
    return;
  }
  const bool compares = Has(i.mnemonic, "cmp") || Has(i.mnemonic, "comis") || Starts(i.mnemonic, "test");
  const bool writes = bracket < std::min(i.operands.find(','), i.operands.size()) && !compares &&
                      i.operands.find(',') != std::string::npos;
  ++(writes ? loop->stores : loop->loads);
}

// Arithmetic on floats: packed ("ps", "pd", "ph") or scalar ("ss", "sd", "sh").
void CountArithmetic(const Instruction& i, HotLoop* loop) {
  std::string_view name = i.mnemonic;
  if (Starts(name, "v")) name.remove_prefix(1);
  const bool is_fma =
      Starts(name, "fmadd") || Starts(name, "fmsub") || Starts(name, "fnmadd") || Starts(name, "fnmsub");
  const bool is_division = Starts(name, "div") || Starts(name, "sqrt");
  const bool is_plain = Starts(name, "add") || Starts(name, "sub") || Starts(name, "mul") ||
                        Starts(name, "max") || Starts(name, "min");
  const bool is_dot = Starts(name, "dp") || Starts(name, "pdp");
  if (Has(name, "gather")) ++loop->gathers;
  if (!is_fma && !is_division && !is_plain && !is_dot) return;
  const std::string_view type = name.size() > 2 ? name.substr(name.size() - 2) : "";
  if (type == "ss" || type == "sd" || type == "sh") {
    ++loop->scalar;
  } else if (type == "ps" || type == "pd" || type == "ph" || is_dot) {
    ++loop->packed;
    const int bits = Has(i.operands, "zmm") ? 512 : Has(i.operands, "ymm") ? 256 : 128;
    loop->vector_bits = std::max(loop->vector_bits, bits);
  } else {
    return;
  }
  loop->multiply_adds += is_fma;
  loop->divisions += is_division;
}

void TakeExcerpt(const std::vector<Instruction>& code, const Range& range, const AddressSamples& samples,
                 int all_samples, HotLoop* loop) {
  const auto count_at = [&](size_t i) {
    const auto found = samples.find(code[i].address);
    return found == samples.end() ? 0 : found->second;
  };
  size_t hottest = range.first;
  for (size_t i = range.first; i <= range.last; ++i) {
    if (count_at(i) > count_at(hottest)) hottest = i;
  }
  const size_t length = std::min<size_t>(kMostExcerpt, range.last - range.first + 1);
  size_t first = hottest > range.first + length / 2 ? hottest - length / 2 : range.first;
  first = std::min(first, range.last + 1 - length);
  for (size_t i = first; i < first + length; ++i) {
    std::string text = code[i].mnemonic;
    if (code[i].target)
      text += *code[i].target == code[range.first].address ? " (start of the loop)" : " ...";
    if (!code[i].operands.empty()) text += " " + code[i].operands;
    loop->excerpt.push_back({text, all_samples > 0 ? static_cast<double>(count_at(i)) / all_samples : 0.0});
  }
}

HotLoop Describe(const std::vector<Instruction>& code, const Range& range, const AddressSamples& samples,
                 int all_samples) {
  HotLoop loop;
  loop.instructions = static_cast<int>(range.last - range.first + 1);
  loop.share = all_samples > 0 ? static_cast<double>(range.samples) / all_samples : 0;
  for (size_t i = range.first; i <= range.last; ++i) {
    const Instruction& instruction = code[i];
    if (instruction.line > 0) {
      loop.first_line = loop.first_line == 0 ? instruction.line : std::min(loop.first_line, instruction.line);
      loop.last_line = std::max(loop.last_line, instruction.line);
    }
    loop.calls += Starts(instruction.mnemonic, "call");
    CountMemory(instruction, &loop);
    CountArithmetic(instruction, &loop);
  }
  TakeExcerpt(code, range, samples, all_samples, &loop);
  return loop;
}

}  // namespace

const std::vector<std::string>& DisassemblyArguments() {
  static const std::vector<std::string> kArguments = {"-d", "-l", "--no-show-raw-insn", "-M", "intel"};
  return kArguments;
}

std::optional<HotLoop> FindHotLoop(const std::string& disassembly, const AddressSamples& samples,
                                   int all_samples, const std::string& source_name, int lines) {
  const std::vector<Instruction> code = Read(disassembly, source_name, lines);
  std::vector<Range> loops = Loops(code);
  if (loops.empty()) return std::nullopt;
  CountSamples(code, samples, &loops);
  const int in_loops = std::max_element(loops.begin(), loops.end(), [](const Range& a, const Range& b) {
                         return a.samples < b.samples;
                       })->samples;
  if (!samples.empty() && in_loops == 0) return std::nullopt;
  return Describe(code, samples.empty() ? LongestOf(Innermost(loops)) : HottestOf(loops, in_loops), samples,
                  all_samples);
}

}  // namespace kevin
