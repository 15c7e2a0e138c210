#pragma once
// Text of problems, records and replies inside generated files. Each function returns text that stands for its
// argument in one language and cannot end what it stands in: a name stays a name, a comment stays one comment.
// Every exporter writes such text through these functions and in no other way. Pure; any thread.
//
// Sources of kernels are code and are written as they are where code is expected (kernel.cu); inside another
// language (a Python file with the kernel as a string) they go through PythonText. Names of files: FileName in
// agent/text.h; words of a shell: ShellWord in agent/machine.h; JSON: ToLine in agent/events.h.

#include <string>
#include <string_view>
#include <vector>

namespace kevin {

// A Python string literal on one line, in double quotes. Hidden characters are escapes; a byte that is no
// UTF-8 becomes U+FFFD.
std::string PythonString(std::string_view text);

// A Python string literal over several lines, for texts that people read: r'''...''' where the text permits
// it, else a literal a line in parentheses. Same value as PythonString.
std::string PythonText(std::string_view text);

// Comment lines, one for each text, with line ends. No text ends its comment, continues it on the next line or
// declares an encoding of the file.
std::string PythonComments(const std::vector<std::string>& texts);  // "# ..."
std::string CppComments(const std::vector<std::string>& texts);     // "// ...", C++, CUDA C++ and PTX

// A C++ string literal on one line. Neither a trigraph nor a universal character name arises.
std::string CppString(std::string_view text);

// Lines of a block that Markdown shows as they are: indented by four spaces, one line for each text.
std::string MarkdownLines(const std::vector<std::string>& texts);

// An identifier of Python and C++ that begins with `prefix`, itself an identifier: all else than ASCII letters
// and digits is '_'; at most 120 bytes.
std::string Identifier(std::string_view prefix, std::string_view text);

}  // namespace kevin
