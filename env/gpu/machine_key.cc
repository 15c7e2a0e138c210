#include "env/gpu/machine_key.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

#include "env/problem/text.h"

namespace kevin {
namespace {

// The ELF-64 structures, as the ABI lays them out.
struct ElfHeader {
  unsigned char ident[16];
  uint16_t type, machine;
  uint32_t version;
  uint64_t entry, program_headers, section_headers;
  uint32_t flags;
  uint16_t header_bytes, program_header_bytes, program_header_count, section_header_bytes,
      section_header_count, names_section;
};
struct ElfSection {
  uint32_t name, type;
  uint64_t flags, address, offset, bytes;
  uint32_t link, info;
  uint64_t alignment, entry_bytes;
};
struct ElfSegment {
  uint32_t type, flags;
  uint64_t offset, virtual_address, physical_address, file_bytes, memory_bytes, alignment;
};
struct ElfSymbol {
  uint32_t name;
  uint8_t info, other;
  uint16_t section;
  uint64_t value, bytes;
};
static_assert(sizeof(ElfSymbol) == 24 && sizeof(ElfHeader) == 64 && sizeof(ElfSection) == 64 &&
              sizeof(ElfSegment) == 56);

constexpr uint32_t kProgramBits = 1, kSymbols = 2, kStrings = 3, kRelocationsWithAddends = 4, kNoBits = 8,
                   kRelocations = 9;
constexpr uint64_t kLoaded = 2;  // SHF_ALLOC

bool StartsWith(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

// ".debug_line", ".rela.debug_line", ".nv_debug_ptx_txt.3772901109".
bool IsDebugName(std::string_view name) {
  if (StartsWith(name, ".rela.")) {
    name.remove_prefix(5);
  } else if (StartsWith(name, ".rel.")) {
    name.remove_prefix(4);
  }
  return StartsWith(name, ".debug_") || StartsWith(name, ".nv_debug_");
}

// For debuggers alone: by its name, its type, and not loaded to the device.
bool IsDebugSection(std::string_view name, const ElfSection& section) {
  const bool known_type =
      section.type == kProgramBits || section.type == kRelocations || section.type == kRelocationsWithAddends;
  return (section.flags & kLoaded) == 0 && known_type && IsDebugName(name);
}

class CubinReader {
 public:
  explicit CubinReader(std::string_view cubin) : cubin_(cubin) {}

  // Empty: not an ELF file that this reader understands whole.
  std::optional<std::string> Code() {
    if (!Read(0, &header_) || !StartsWith(cubin_,
                                          "\x7f"
                                          "ELF\x02\x01"))
      return std::nullopt;
    const ElfHeader& h = header_;
    if (h.section_header_bytes != sizeof(ElfSection) ||
        (h.program_header_count > 0 && h.program_header_bytes != sizeof(ElfSegment)) ||
        h.section_header_count == 0 || h.names_section >= h.section_header_count)
      return std::nullopt;
    ElfHeader kept = h;
    kept.program_headers = kept.section_headers = 0;  // places that depend on the size of debug sections
    Add(Bytes(kept));
    if (!ReadSections() || !AddSections() || !AddSegments()) return std::nullopt;
    return std::move(code_);
  }

 private:
  template <typename T>
  bool Read(uint64_t at, T* value) const {
    if (at > cubin_.size() || cubin_.size() - at < sizeof(T)) return false;
    std::memcpy(value, cubin_.data() + at, sizeof(T));
    return true;
  }
  template <typename T>
  static std::string_view Bytes(const T& value) {
    return {reinterpret_cast<const char*>(&value), sizeof(T)};
  }
  // With its length, so that no two lists of parts give the same text.
  void Add(std::string_view part) {
    const uint64_t length = part.size();
    code_.append(Bytes(length));
    code_.append(part);
  }

  std::optional<std::string_view> ContentOf(const ElfSection& section) const {
    if (section.type == kNoBits) return std::string_view();
    if (section.offset > cubin_.size() || cubin_.size() - section.offset < section.bytes) return std::nullopt;
    return cubin_.substr(section.offset, section.bytes);
  }

  bool SectionAt(uint64_t index, ElfSection* section) const {
    uint64_t place = 0;
    return !__builtin_add_overflow(header_.section_headers, index * sizeof(ElfSection), &place) &&
           Read(place, section);
  }

  // Every section, and the debug sections by number: their names may hold a hash of the text.
  bool ReadSections() {
    sections_.resize(header_.section_header_count);
    for (size_t i = 0; i < sections_.size(); ++i) {
      uint64_t place = 0;
      if (__builtin_add_overflow(header_.section_headers, i * sizeof(ElfSection), &place) ||
          !Read(place, &sections_[i]))
        return false;
    }
    for (const ElfSection& section : sections_) {
      const auto name = NameIn(header_.names_section, section.name);
      if (!name || !ContentOf(section)) return false;
      names_.push_back(*name);
      is_debug_.push_back(IsDebugSection(*name, section));
    }
    return true;
  }

  std::optional<std::string_view> NameIn(size_t table, uint32_t at) const {
    if (table >= sections_.size() || sections_[table].type != kStrings) return std::nullopt;
    const auto strings = ContentOf(sections_[table]);
    if (!strings || at >= strings->size()) return std::nullopt;
    const size_t end = strings->find('\0', at);
    if (end == std::string_view::npos) return std::nullopt;
    return strings->substr(at, end - at);
  }

  bool AddSections() {
    for (size_t i = 0; i < sections_.size(); ++i) {
      ElfSection section = sections_[i];
      section.offset = section.name = 0;
      if (is_debug_[i] || section.type == kStrings) section.bytes = 0;
      Add(is_debug_[i] ? "debug" : names_[i]);
      Add(Bytes(section));
      if (is_debug_[i]) continue;
      if (section.type == kSymbols) {
        if (!AddSymbols(sections_[i])) return false;
      } else if (section.type == kStrings) {
        AddStrings(*ContentOf(sections_[i]));
      } else {
        Add(*ContentOf(sections_[i]));
      }
    }
    return true;
  }

  void AddStrings(std::string_view strings) {
    while (!strings.empty()) {
      const std::string_view string = strings.substr(0, strings.find('\0'));
      if (!IsDebugName(string)) Add(string);
      strings.remove_prefix(std::min(string.size() + 1, strings.size()));
    }
  }

  // With their names, since places in the table of strings depend on the names of debug sections.
  bool AddSymbols(const ElfSection& table) {
    if (table.entry_bytes != sizeof(ElfSymbol) || table.bytes % sizeof(ElfSymbol) != 0) return false;
    for (uint64_t at = 0; at < table.bytes; at += sizeof(ElfSymbol)) {
      ElfSymbol symbol;
      if (!Read(table.offset + at, &symbol)) return false;
      const auto name = NameIn(table.link, symbol.name);
      if (!name) return false;
      const bool debug = symbol.section < is_debug_.size() && is_debug_[symbol.section];
      symbol.name = 0;
      Add(debug ? "debug" : *name);
      Add(Bytes(symbol));
    }
    return true;
  }

  // Their sizes follow from those of the sections, which stand above, and from the padding between them.
  bool AddSegments() {
    for (uint64_t i = 0; i < header_.program_header_count; ++i) {
      ElfSegment segment;
      uint64_t place = 0;
      if (__builtin_add_overflow(header_.program_headers, i * sizeof(ElfSegment), &place) ||
          !Read(place, &segment))
        return false;
      segment.offset = segment.file_bytes = segment.memory_bytes = 0;
      Add(Bytes(segment));
    }
    return true;
  }

  std::string_view cubin_;
  ElfHeader header_{};
  std::vector<ElfSection> sections_;
  std::vector<std::string_view> names_;
  std::vector<bool> is_debug_;
  std::string code_;
};

}  // namespace

std::string MachineCodeOf(const std::string& cubin) {
  std::optional<std::string> code = CubinReader(cubin).Code();
  return code ? std::move(*code) : cubin;
}

std::string MachinePlanHash(const LaunchPlan& plan) {
  LaunchPlan kept = plan;
  kept.cubin = MachineCodeOf(plan.cubin);
  for (PlannedOperation& operation : kept.operations) {
    auto* planned = std::get_if<PlannedLaunch>(&operation);
    if (!planned) continue;
    planned->launch.kernel.clear();
    planned->launch.line = 0;
    // A name may hold bytes that are no UTF-8, and none of them may be lost.
    planned->lowered_name = HexText(planned->lowered_name);
  }
  for (auto& [name, constant] : kept.constants) {
    name = HexText(name);
    constant.symbol.clear();
  }
  for (GlobalVariable& global : kept.globals) global.name = HexText(global.name);
  return Sha256Hex("machine plan 2\n" + LaunchPlanToText(kept));
}

}  // namespace kevin
