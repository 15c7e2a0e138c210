#pragma once
// Texts that try to leave the place they are written to: strings and comments of Python and C++, shells, pages,
// paths, terminals. What runs in Python writes the file "canary" into the working directory. All are UTF-8.

#include <fmt/format.h>

#include <string>
#include <vector>

namespace kevin {

inline std::vector<std::string> HostileTexts() {
  const std::string act = "open('canary', 'w').write('x')";
  std::vector<std::string> texts = {
      "plain",
      "\"\"\"\n" + act + "\n\"\"\"",
      "\"\"\"; " + act + "; \"\"\"",
      "'''\n" + act + "\n'''",
      "'''; " + act + "; r'''",
      "\"; " + act + "; \"",
      "'; " + act + "; '",
      "\\\"; " + act + " #",
      "\\",
      "\\\\",
      "ends in a quote '",
      "ends in quotes \"\"",
      "ends in a backslash \\",
      "backslash and spaces \\   ",
      "a\n" + act + "\n",
      "a\r" + act + "\r",
      "a\r\n" + act,
      "a\f" + act,
      "a\v" + act,
      "a\xe2\x80\xa8" + act + "\xe2\x80\xa9" + act + "\xc2\x85" + act,
      "-*- coding: utf-7 -*- +AAo-" + act,
      "vim: set fileencoding=utf-7 : +AAo-" + act,
      "coding:coding: utf-16",
      "coding=utf_7 +AAo-" + act + "+AAo-",
      "{0} {} {name} %s %n ${IFS}$(touch canary)`touch canary`",
      "x*/ #error left the comment\n/*",
      "?\?/\n#error left the comment",
      "?\?/",
      "?\?/?\?/ ",
      "\\\n#error left the comment",
      "?\?=error left the comment",
      "\\u0022 + x + \\u0022 \\N{QUOTATION MARK} \\x22",
      "\")\nraise SystemExit(3)\nx = (\"",
      "<script>alert(1)</script><img src=x onerror=alert(1)>",
      "\" onmouseover=\"alert(1)\" x='",
      "</pre></style></title><svg onload=alert(1)>&lt;b&gt;",
      "../../../tmp/canary",
      "/etc/passwd",
      ".bashrc",
      "-rf",
      "a;touch canary;#",
      "'; touch canary; '",
      "\x1b[2J\x1b]0;owned\x07\x1b]52;c;cm0gLXJmIH4=\x1b\\",
      "\xc2\x9b"
      "31m\x7f\b\b\b",
      "\xe2\x80\xae reversed \xe2\x81\xa6 isolated \xf3\xa0\x81\x81 tagged",
      "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80",
      std::string(300, '\''),
      std::string(300, '\\'),
      std::string(300, '"'),
  };
  // Random mixtures of what matters to some language.
  const std::vector<std::string> pieces = {
      "'",       "\"",    "\\",   "\n", "\r", "#", "//", "/*", "*/",   "?\?/",
      "\"\"\"",  "'''",   "{",    "}",  "<",  ">", "&",  ";",  " ",    "x",
      "u",       "N",     "0",    "\t", "$(", "`", "(",  ")",  "\x1b", "\xe2\x80\xae",
      "coding:", "utf-7", "+AAo-"};
  uint32_t state = 17;
  for (int round = 0; round < 60; ++round) {
    std::string text;
    for (int i = 0; i < 12; ++i) {
      state = state * 1664525 + 1013904223;
      text += pieces[(state >> 16) % pieces.size()];
    }
    texts.push_back(text);
  }
  return texts;
}

}  // namespace kevin
