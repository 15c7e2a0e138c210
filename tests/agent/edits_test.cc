#include "agent/edits.h"

#include "tests/catch.h"

namespace kevin {
namespace {

const std::string kBase =
    "#include <cmath>\n"
    "\n"
    "static float square(float v) { return v * v; }\n"
    "\n"
    "extern \"C\" void launch(const float* x, float* out) {\n"
    "  for (long i = 0; i < N; ++i) {\n"
    "    out[i] = square(x[i]);\n"
    "  }\n"
    "}\n";

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a diff is found by its lines, not by its numbers") {
  for (const char* header : {"@@ -6,3 +6,4 @@", "@@ -60,3 +1,4 @@", "@@", "@@ launch @@"}) {
    const Edited edited = ApplyDiff(std::string("--- a/kernel.cpp\n+++ b/kernel.cpp\n") + header +
                                        "\n extern \"C\" void launch(const float* x, float* out) {\n"
                                        "+#pragma omp parallel for\n   for (long i = 0; i < N; ++i) {\n",
                                    kBase);
    INFO(header);
    CHECK(edited.failure == "");
    CHECK(Has(edited.source, "out) {\n#pragma omp parallel for\n  for (long"));
    CHECK(edited.source.size() == kBase.size() + 25);
  }
}

TEST_CASE("several hunks, white space at line ends, lines without a mark") {
  const Edited edited = ApplyDiff(
      "@@ -3,1 +3,1 @@\n-static float square(float v) { return v * v; }   \n+static float square(float v) { return v * v + 1; }\n"
      "@@ -7,1 +7,2 @@\n-    out[i] = square(x[i]);\n+    const float v = x[i];\n+    out[i] = square(v);\n}\n\n",
      kBase);
  CHECK(edited.failure == "");  // "}" is "  }" there: it stays as it is
  CHECK(Has(edited.source, "    const float v = x[i];\n    out[i] = square(v);\n  }\n}\n"));
  const Edited loosely =
      ApplyDiff("@@ -7,1 +7,2 @@\n-out[i] = square(x[i]);\n+    out[i] = square(x[i]) + 1;\n   }\n", kBase);
  CHECK(loosely.failure == "");
  CHECK(Has(loosely.source, "    out[i] = square(x[i]) + 1;\n  }\n}\n"));
}

TEST_CASE("the nearest of equal places is changed") {
  const std::string base = "a\nb\na\nb\na\nb\n";
  CHECK(ApplyDiff("@@ -3,1 +3,1 @@\n-a\n+c\n", base).source == "a\nb\nc\nb\na\nb\n");
  CHECK(ApplyDiff("@@ -1,1 +1,2 @@\n-a\n+c\n+d\n@@ -5,1 +6,1 @@\n-a\n+e\n", base).source ==
        "c\nd\nb\na\nb\ne\nb\n");
}

TEST_CASE("a diff that does not fit says where") {
  CHECK(ApplyDiff("@@ -7,1 +7,1 @@\n-    out[i] = cube(x[i]);\n+    out[i] = 0;\n", kBase).failure ==
        "hunk 1 of the diff does not apply: the kernel has no line `out[i] = cube(x[i]);`");
  CHECK(
      ApplyDiff("@@ -5,2 +5,2 @@\n   for (long i = 0; i < N; ++i) {\n-    out[i] = x[i];\n+    out[i] = 0;\n",
                kBase)
          .failure ==
      "hunk 1 of the diff does not apply: behind line 6 of the kernel, `for (long i = 0; i < N; ++i) {`, "
      "it expects `out[i] = x[i];` and not `out[i] = square(x[i]);`");
  CHECK(ApplyDiff("@@\n+int a;\n", kBase).failure ==
        "hunk 1 of the diff adds lines but does not say where: give context");
  CHECK(ApplyDiff("--- a\n+++ b\n", kBase).failure == "the diff changes nothing");
  std::string many;
  for (size_t i = 0; i <= kMostHunks; ++i) many += "@@ -1,1 +1,1 @@\n-a\n+b\n";
  CHECK(ApplyDiff(many, kBase).failure == "the diff has more than 200 hunks");
  std::string hunk = "@@ -1,1 +1,1 @@\n", long_base;
  for (int i = 0; i < 50000; ++i) hunk += "-a\n", long_base += "a\n";
  CHECK(ApplyDiff(hunk + "-b\n", long_base).failure == "the diff is too long for this kernel");
}

TEST_CASE("what is a diff") {
  CHECK(IsDiff("@@ -1 +1 @@\n-a\n+b\n"));
  CHECK(IsDiff("--- a\n+++ b\n-a\n+b\n"));
  CHECK_FALSE(IsDiff("- a list\n+ of points\n"));
  CHECK_FALSE(IsDiff(kBase));
}

TEST_CASE("functions take the place of those with their names") {
  const auto changed =
      ReplaceFunctions("// Faster.\nstatic float square(float v) {\n  return std::pow(v, 2);\n}\n", kBase);
  REQUIRE(changed);
  CHECK(Has(*changed,
            "// Faster.\nstatic float square(float v) {\n  return std::pow(v, 2);\n}\n\nextern \"C\""));
  CHECK_FALSE(Has(*changed, "v * v"));
  const auto with_helper = ReplaceFunctions(
      "static float twice(float v) { return 2 * v; }\nextern \"C\" void launch(const float* x, float* out) { out[0] = "
      "twice(square(x[0])); }\n",
      kBase);
  REQUIRE(with_helper);  // it uses `square`, which only the earlier kernel has
  CHECK(Has(*with_helper, "static float twice(float v) { return 2 * v; }\n"));
  CHECK(with_helper->find("square(float") < with_helper->find("twice(float"));
  CHECK_FALSE(ReplaceFunctions(kBase, kBase));  // a file of its own
  CHECK_FALSE(
      ReplaceFunctions("extern \"C\" void launch(const float* x, float* out) { out[0] = 0; }\n", kBase));
  CHECK_FALSE(ReplaceFunctions("int unknown() { return 1; }", kBase));
  for (const char* own : {"const auto square = [](float v) { return v * v; };", "float square = 0;"}) {
    CHECK_FALSE(ReplaceFunctions(
        std::string("extern \"C\" void launch(const float* x, float* out) { ") + own + " out[0] = 1; }\n",
        kBase));
  }
  CHECK_FALSE(ReplaceFunctions("int i = 0;", kBase));
}

TEST_CASE("a difference applies to the text that it was made from") {
  const std::string after =
      "#include <cmath>\n#include <omp.h>\n\nextern \"C\" void launch(const float* x, float* out) {\n"
      "  for (long i = 0; i < N; ++i) {\n    out[i] = x[i] * x[i];\n  }\n}\n// end\n";
  const std::string diff = UnifiedDiff(kBase, after, "turn 1", "turn 2");
  INFO(diff);
  CHECK(
      diff.starts_with("--- turn 1\n+++ turn 2\n@@ -1,9 +1,9 @@\n #include <cmath>\n-\n"
                       "-static float square(float v) { return v * v; }\n+#include <omp.h>\n"));
  CHECK(ApplyDiff(diff, kBase).source == after);
  CHECK(UnifiedDiff(kBase, kBase, "a", "b").empty());
  CHECK(UnifiedDiff(std::string(5000, '\n'), std::string(5000, '\n') + "x\n", "a", "b").empty());  // too long
}

}  // namespace kevin
