#pragma once
// Text into HTML, and the style that the whole page shares.

#include <string>
#include <string_view>

namespace kevin {

// Safe as an element's text and as an attribute's value; bytes that are no UTF-8 and control characters
// become U+FFFD.
std::string Escaped(std::string_view text);

// "<details><summary>SUMMARY</summary>BODY</details>"; both are HTML.
std::string Details(const std::string& summary, const std::string& body, const std::string& css_class = "");

// A table whose cells are HTML; the first row is its heading, first cells are row headings.
std::string HtmlTable(const std::string& rows_of_head, const std::string& rows_of_body);

extern const char kPageStyle[];

}  // namespace kevin
