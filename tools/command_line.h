#pragma once
// What a command line may hold, and what is said about one that is not understood.

#include <string>

#include "env/error.h"

namespace CLI {
class App;
class ParseError;
}  // namespace CLI

namespace kevin {

// For CLI11's check(): "" when `text` is a whole number from 0 to 2^63 - 1; else the message.
std::string WhyNotWhole(const std::string& text);

// CLI11's error of a command line as an Error(kBadRequest): it names the command, and its next step names a similar
// command or option (edit distance 2 at most) or the help to read.
Error UsageError(const CLI::App& app, const CLI::ParseError& error);

}  // namespace kevin
