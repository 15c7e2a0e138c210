#pragma once
// The values of C++'s number and character literals.

#include <string>

namespace kevin::launch {

__extension__ typedef __int128 Integer;  // holds every value of every integer type, and sums of two

struct Number {
  Integer integer = 0;
  double floating = 0;
  bool is_floating = false;
  std::string type;   // "int", "unsigned long", "float", ...
  std::string error;  // empty, or what is wrong
};
Number ReadNumber(const std::string& text);     // digit separators gone
Number ReadCharacter(const std::string& text);  // with its quotes

std::string ToText(Integer value);

}  // namespace kevin::launch
