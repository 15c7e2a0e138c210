#include "env/problem/expression.h"

#include "env/error.h"
#include "tests/catch.h"

namespace kevin {
namespace {

const Symbols kSymbols = {{"B", 3}, {"N", 10}, {"big", INT64_MAX}};

int64_t Value(const std::string& expression) { return EvaluateExpression(expression, kSymbols); }
std::string Mistake(const std::string& expression) {
  return TryEvaluateExpression(expression, kSymbols).error;
}

TEST_CASE("expressions follow the usual precedence") {
  CHECK(Value("2 + B*N") == 32);
  CHECK(Value("(2 + B)*N") == 50);
  CHECK(Value("N - B - 2") == 5);
  CHECK(Value("2*N/3*2") == 12);
  CHECK(Value("-B + N") == 7);
  CHECK(Value("N - -B") == 13);
  CHECK(Value(" 4096 ") == 4096);
  CHECK(Value("((((B))))") == 3);
}

TEST_CASE("division rounds down") {
  CHECK(Value("7/2") == 3);
  CHECK(Value("-7/2") == -4);
  CHECK(Value("7/-2") == -4);
  CHECK(Value("-7/-2") == 3);
  CHECK(Value("-8/2") == -4);
}

TEST_CASE("errors in expressions are named") {
  CHECK(Mistake("B*M") == "unknown symbol 'M' (sizes define B, N, big)");
  CHECK(TryEvaluateExpression("M", {}).error == "unknown symbol 'M' (sizes define none)");
  CHECK(Mistake("2*") == "'2*' ends where a number, a symbol or '(' is expected");
  CHECK(Mistake("") == "'' ends where a number, a symbol or '(' is expected");
  CHECK(Mistake("(B + 1") == "'(B + 1' ends where ')' is expected");
  CHECK(Mistake("B N") == "'B N' has 'N' at position 3 where an operator is expected");
  CHECK(Mistake("2.5*B") == "'2.5*B' has '.' at position 2 where an operator is expected");
  CHECK(Mistake("B**2") == "'B**2' has '*' at position 3 where a number, a symbol or '(' is expected");
  CHECK(Mistake(std::string("B\0", 2)).find("where an operator is expected") != std::string::npos);
  CHECK(Mistake("N/(B - 3)") == "'N/(B - 3)' divides by zero");
  CHECK(Mistake(std::string(100, '(')) == "nested deeper than 64 levels");
}

TEST_CASE("expressions refuse to overflow") {
  CHECK(Value("big") == INT64_MAX);
  for (const char* expression :
       {"big + 1", "big*2", "-big - 2", "9223372036854775808", "(-big - 1)/-1", "-(-big - 1)"}) {
    CHECK(Mistake(expression) == "'" + std::string(expression) + "' overflows a 64-bit integer");
  }
}

TEST_CASE("EvaluateExpression throws what TryEvaluateExpression reports") {
  try {
    EvaluateExpression("2*M", kSymbols);
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    CHECK(std::string(error.what()) == "expression '2*M': unknown symbol 'M' (sizes define B, N, big)");
  }
}

TEST_CASE("scales: expressions and the roots of fan-ins") {
  const Symbols symbols = {{"C", 16}};
  CHECK(TryEvaluateScale("C", symbols).value == 16);
  CHECK(TryEvaluateScale("1/sqrt(4*C)", symbols).value == 0.125);
  CHECK(TryEvaluateScale("1/sqrt(D)", symbols).error == "unknown symbol 'D' (sizes define C)");
  CHECK(TryEvaluateScale("1/sqrt(C - 16)", symbols).error == "'1/sqrt(C - 16)' must be positive, not 0");
  CHECK(TryEvaluateScale("C*2/sqrt(C)", symbols).error != "");
}

}  // namespace
}  // namespace kevin
