#include "env/gpu/launch/numbers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>

namespace kevin::launch {
namespace {

int DigitValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

bool IsHex(const std::string& text) {
  return text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
}

Number NumberMistake(const std::string& text) {
  Number number;
  number.error = fmt::format("`{}` is not a number that C++ knows", text);
  return number;
}

Number ReadFloating(const std::string& text) {
  Number number;
  number.is_floating = true;
  char* end = nullptr;
  number.floating = std::strtod(text.c_str(), &end);
  std::string suffix(end);
  if (suffix != "" && suffix != "f" && suffix != "F" && suffix != "l" && suffix != "L")
    return NumberMistake(text);
  const bool single = suffix == "f" || suffix == "F";
  number.type = single ? "float" : "double";
  if (single) number.floating = static_cast<double>(std::strtof(text.c_str(), nullptr));
  return number;
}

// The first type of C++'s list that holds the value.
std::string IntegerType(Integer value, bool is_unsigned, bool is_long, bool long_long, bool decimal) {
  const bool fits_int = value <= INT32_MAX, fits_unsigned = value <= UINT32_MAX,
             fits_long = value <= INT64_MAX;
  if (!is_long && !is_unsigned && fits_int) return "int";
  if (!is_long && (is_unsigned || !decimal) && fits_unsigned) return "unsigned int";
  const std::string name = long_long ? "long long" : "long";
  return !is_unsigned && fits_long ? name : "unsigned " + name;
}

}  // namespace

Number ReadNumber(const std::string& text) {
  const bool hex = IsHex(text);
  const bool floating = hex ? text.find_first_of("pP.") != std::string::npos
                            : text.find_first_of(".eE") != std::string::npos && !text.starts_with("0b");
  if (floating) return ReadFloating(text);
  size_t at = 0;
  int base = 10;
  if (hex) {
    base = 16, at = 2;
  } else if (text.size() > 2 && text[0] == '0' && (text[1] == 'b' || text[1] == 'B')) {
    base = 2, at = 2;
  } else if (text.size() > 1 && text[0] == '0') {
    base = 8, at = 1;
  }
  Number number;
  for (; at < text.size() && DigitValue(text[at]) < base; ++at) {
    number.integer = number.integer * base + DigitValue(text[at]);
    if (number.integer > UINT64_MAX) {
      number.error = fmt::format("`{}` does not fit into 64 bits", text);
      return number;
    }
  }
  std::string suffix = text.substr(at);
  const auto u = std::find_if(suffix.begin(), suffix.end(), [](char c) { return c == 'u' || c == 'U'; });
  const bool is_unsigned = u != suffix.end();
  if (is_unsigned) suffix.erase(u);
  const bool long_long = suffix == "ll" || suffix == "LL";
  const bool is_long = long_long || suffix == "l" || suffix == "L" || suffix == "z" || suffix == "Z";
  if (!suffix.empty() && !is_long) return NumberMistake(text);
  number.type = IntegerType(number.integer, is_unsigned, is_long, long_long, base == 10);
  return number;
}

Number ReadCharacter(const std::string& text) {
  const size_t open = text.find('\'');
  const std::string inside = text.substr(open + 1, text.size() - open - 2);
  Number number;
  number.type = "char";
  if (inside.size() == 1) {
    number.integer = inside[0];
  } else if (inside.size() == 2 && inside[0] == '\\') {
    const std::string names = "nt0r\\'\"";
    const std::string values("\n\t\0\r\\'\"", 7);
    const size_t found = names.find(inside[1]);
    if (found == std::string::npos) return NumberMistake(text);
    number.integer = values[found];
  } else {
    return NumberMistake(text);
  }
  return number;
}

std::string ToText(Integer value) {
  if (value < 0) return "-" + ToText(-value);
  std::string digits;
  do {
    digits.insert(digits.begin(), static_cast<char>('0' + static_cast<int>(value % 10)));
    value /= 10;
  } while (value > 0);
  return digits;
}

}  // namespace kevin::launch
