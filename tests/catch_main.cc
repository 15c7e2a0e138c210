// The main of every test program. Failed assertions are listed once more at the end: a long test prints much in between.

#ifndef KEVIN_CATCH3
#define CATCH_CONFIG_MAIN
#endif
#include <cstdio>
#include <string>
#include <vector>

#include "tests/catch.h"

namespace {

#ifdef KEVIN_CATCH3
using ListenerBase = Catch::EventListenerBase;
using Seen = void;
#else
using ListenerBase = Catch::TestEventListenerBase;
using Seen = bool;
#endif

class FailureList : public ListenerBase {
 public:
  using ListenerBase::ListenerBase;

  Seen assertionEnded(const Catch::AssertionStats& stats) override {
    const Catch::AssertionResult& result = stats.assertionResult;
    if (!result.isOk()) {
      const auto source = result.getSourceInfo();
      std::string line = std::string(source.file) + ":" + std::to_string(source.line) + ": " +
                         result.getExpressionInMacro() + ", here " + result.getExpandedExpression();
      if (result.hasMessage()) line += "; " + std::string(result.getMessage());
      for (const auto& message : stats.infoMessages) line += "; " + message.message;
      failed_.push_back(section_ + ": " + line);
    }
    return Seen(false);  // nothing that a reporter must keep
  }

  void sectionStarting(const Catch::SectionInfo& section) override {
    section_ = section.name;
    ListenerBase::sectionStarting(section);
  }

  void testRunEnded(const Catch::TestRunStats& stats) override {
    for (const std::string& line : failed_) std::printf("failed: %s\n", line.c_str());
    std::fflush(stdout);
    ListenerBase::testRunEnded(stats);
  }

 private:
  std::string section_;
  std::vector<std::string> failed_;
};

CATCH_REGISTER_LISTENER(FailureList)

}  // namespace

#ifdef KEVIN_CATCH3
int main(int argc, char** argv) { return Catch::Session().run(argc, argv); }
#endif
