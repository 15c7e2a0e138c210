#include "env/problem/problem.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <set>

#include "env/error.h"
#include "tests/catch.h"
#include "tests/folders.h"

namespace kevin {
namespace {

ProblemSet Shipped() { return ProblemSet(SourceFolder() / "env/problems"); }

// "what | next step" of the Error that Find throws.
std::string Complaint(const ProblemSet& set, const std::string& id) {
  try {
    set.Find(id);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    return std::string(error.what()) + " | " + error.next_step();
  }
  return "";
}

class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "kevin_problem_test_XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  void Write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name) << text;
  }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST_CASE("the problems that ship load at every size") {
  const ProblemSet set = Shipped();
  std::vector<std::string> ids;
  for (const auto& [level, count] : {std::pair{1, 100}, {2, 100}, {3, 50}}) {
    for (int number = 1; number <= count; ++number)
      ids.push_back("level" + std::to_string(level) + "/" + std::to_string(number));
  }
  for (int number = 1; number <= 80; ++number) ids.push_back("chains/" + std::to_string(number));
  CHECK(set.Ids() == ids);
  for (const std::string& id : set.Ids()) {
    INFO(id);
    const Problem problem = set.Find(id);
    CHECK(problem.id == id);
    CHECK_FALSE(problem.families.empty());
    CHECK(problem.sizes.contains("small"));
    CHECK(problem.sizes.contains("full"));
    CHECK(LaunchSignature(problem).starts_with("extern \"C\" void launch(const float* "));
    for (const auto& [size, symbols] : problem.sizes) {
      INFO(size);
      const SizedProblem sized = AtSize(problem, size);
      int64_t bytes = 0;
      for (const ConcreteTensor& tensor : sized.inputs) bytes += tensor.bytes;
      for (const ConcreteTensor& tensor : sized.outputs) bytes += tensor.bytes;
      CHECK(bytes > 0);
      CHECK(sized.flops > 0);
      CHECK(sized.bytes == static_cast<double>(bytes));  // each tensor once, in all of them
      CHECK(sized.min_bytes > 0);
      CHECK(sized.min_bytes <= sized.bytes);
      CHECK(sized.min_flops <= sized.flops);
      CHECK(sized.reduction >= 1);
      if (size == "small") CHECK(bytes <= 64'000'000);
    }
  }
}

// Only tensors of which some part cannot matter may count for less than their bytes.
TEST_CASE("where less than all bytes must move, the file says why") {
  const ProblemSet set = Shipped();
  for (const std::string& id : set.Ids()) {
    const Problem problem = set.Find(id);
    const SizedProblem sized = AtSize(problem, "full");
    if (sized.min_bytes == sized.bytes) continue;
    INFO(id);
    const bool has_structure =
        std::any_of(problem.inputs.begin(), problem.inputs.end(),
                    [](const auto& input) { return input.structure != Structure::kNone; });
    const size_t cost = problem.text.find("[cost]\n");
    CHECK((has_structure || problem.text.compare(cost + 7, 1, "#") == 0));
  }
}

TEST_CASE("tensors of 2^31 elements are flagged") {
  const ProblemSet set = Shipped();
  for (const std::string& id : set.Ids()) {
    INFO(id);
    const Problem problem = set.Find(id);
    const SizedProblem sized = AtSize(problem, "full");
    bool is_large = false;
    for (const ConcreteTensor& tensor : sized.inputs) is_large |= tensor.elements >= int64_t{1} << 31;
    for (const ConcreteTensor& tensor : sized.outputs) is_large |= tensor.elements >= int64_t{1} << 31;
    CHECK(problem.flags.contains("needs-int64-index") == is_large);
  }
}

// The ids of env/problems/suites/NAME.txt.
std::vector<std::string> Suite(const std::string& name) {
  std::ifstream file(SourceFolder().string() + "/env/problems/suites/" + name + ".txt");
  std::vector<std::string> ids;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line[0] != '#') ids.push_back(line);
  }
  return ids;
}

TEST_CASE("suites name problems that count, each once") {
  const ProblemSet set = Shipped();
  for (const auto& [name, count] : {std::pair{"level1", 100},
                                    {"level2", 98},
                                    {"level3", 48},
                                    {"representative-level1", 18},
                                    {"representative-level2", 8},
                                    {"representative-level3", 9},
                                    {"test", 80}}) {
    INFO(name);
    CHECK(Suite(name).size() == static_cast<size_t>(count));
  }
  std::set<std::string> train_and_dev;
  for (const std::string name :
       {"level1", "level2", "level3", "train", "dev", "families-train", "families-test", "test"}) {
    std::set<std::string> seen;
    for (const std::string& id : Suite(name)) {
      INFO(name << " " << id);
      CHECK(seen.insert(id).second);
      CHECK_FALSE(set.Find(id).flags.contains("inadmissible"));
      if (name == "train" || name == "dev") CHECK(train_and_dev.insert(id).second);
      if (name == "test") CHECK_FALSE(train_and_dev.contains(id));
    }
  }
  CHECK(train_and_dev.size() == 198);
  CHECK(Suite("dev").size() == 20);
}

TEST_CASE("the families that are held out are nowhere in their training set") {
  const ProblemSet set = Shipped();
  const auto is_held_out = [&](const std::string& id) {
    const Problem problem = set.Find(id);
    return std::any_of(problem.families.begin(), problem.families.end(), [](const std::string& family) {
      return family == "norm" || family == "scan" || family == "pool";
    });
  };
  const std::vector<std::string> train = Suite("families-train"), test = Suite("families-test");
  CHECK(std::none_of(train.begin(), train.end(), is_held_out));
  CHECK(std::all_of(test.begin(), test.end(), is_held_out));
  CHECK(train.size() + test.size() == 198);
}

TEST_CASE("full sizes are KernelBench's") {
  const ProblemSet set = Shipped();
  const auto shapes = [&](const std::string& id) {
    const Problem problem = set.Find(id);
    const SizedProblem sized = AtSize(problem, "full");
    std::vector<std::vector<int64_t>> all;
    for (const ConcreteTensor& tensor : sized.inputs) all.push_back(tensor.shape);
    for (const ConcreteTensor& tensor : sized.outputs) all.push_back(tensor.shape);
    return all;
  };
  using Shapes = std::vector<std::vector<int64_t>>;
  CHECK(shapes("level1/1") == Shapes{{4096, 4096}, {4096, 4096}, {4096, 4096}});
  CHECK(shapes("level1/2") == Shapes{{2048, 8192}, {8192, 4096}, {2048, 4096}});
  CHECK(shapes("level1/4") == Shapes{{2048, 1048576}, {1048576, 1}, {2048, 1}});
  CHECK(shapes("level1/6") == Shapes{{256, 524288}, {524288, 256}, {256, 256}});
  CHECK(shapes("level1/9") == Shapes{{32768, 32}, {32, 32768}, {32768, 32768}});
  CHECK(shapes("level1/12") == Shapes{{4096}, {4096, 4096}, {4096, 4096}});
  CHECK(shapes("level1/18") == Shapes{{8192, 2048}, {4096, 8192}, {2048, 4096}});
  CHECK(shapes("level1/36") == Shapes{{112, 64, 512, 512}, {112, 64, 512, 512}});
  CHECK(shapes("level1/40") ==
        Shapes{{16, 64, 256, 256}, {64, 256, 256}, {64, 256, 256}, {16, 64, 256, 256}});
  CHECK(shapes("level1/47") == Shapes{{128, 4096, 4095}, {128, 1, 4095}});
  for (const char* id : {"level1/48", "level1/49", "level1/51", "level1/52", "level1/53"}) {
    CHECK(shapes(id) == Shapes{{128, 4096, 4095}, {128, 4095}});
  }
  for (int id = 19; id <= 32; ++id) {
    CHECK(shapes("level1/" + std::to_string(id)) == Shapes{{4096, 393216}, {4096, 393216}});
  }
  CHECK(shapes("level1/88") == Shapes{{8192, 8192}, {8192, 8192}});
  CHECK(shapes("level2/26") ==
        Shapes{{128, 32, 16, 16, 16}, {128, 64, 32, 32, 32}, {32, 64, 3, 3, 3}, {64}, {128, 64, 32, 32, 32}});
  CHECK(shapes("level2/75") ==
        Shapes{{1024, 8192}, {8192, 8192}, {8192}, {8192}, {8192}, {1, 8192, 1, 1}, {1, 8192, 1024, 1}});
  CHECK(shapes("level3/6").front() == std::vector<int64_t>{10, 480, 224, 224});
  CHECK(shapes("level3/6").back() == std::vector<int64_t>{10, 512, 224, 224});
  CHECK(shapes("level1/89") == Shapes{{32768, 32768}, {32768, 32768}});
}

TEST_CASE("signatures list inputs, parameters, outputs") {
  const ProblemSet set = Shipped();
  CHECK(LaunchSignature(set.Find("level1/19")) == "extern \"C\" void launch(const float* x, float* out)");
  CHECK(LaunchSignature(set.Find("level1/51")) == "extern \"C\" void launch(const float* x, long* out)");
  CHECK(LaunchSignature(set.Find("level1/40")) ==
        "extern \"C\" void launch(const float* x, const float* weight, const float* bias, float* out)");
}

TEST_CASE("index outputs say what they must point at") {
  const ProblemSet set = Shipped();
  CHECK(set.Find("level1/51").extreme_dim == 1);
  CHECK(set.Find("level1/51").extreme_is_max);
  CHECK(set.Find("level1/52").extreme_dim == 1);
  CHECK_FALSE(set.Find("level1/52").extreme_is_max);
  CHECK_FALSE(set.Find("level1/49").extreme_dim.has_value());
}

TEST_CASE("an unknown size lists the known ones") {
  const Problem problem = Shipped().Find("level1/19");
  try {
    AtSize(problem, "medium");
    FAIL("no error");
  } catch (const Error& error) {
    CHECK(std::string(error.what()) == "level1/19 has no size 'medium'");
    CHECK(error.next_step() == "its sizes: full, small, v0");
  }
}

TEST_CASE("an unknown problem offers the nearest ids and names") {
  const ProblemSet set = Shipped();
  CHECK(Complaint(set, "relu") ==
        "unknown problem 'relu' | did you mean level1/19 (ReLU), level1/31 (ELU), level1/26 (GELU), "
        "level1/27 (SELU)? `kevin problems` lists all");
  CHECK(Complaint(set, "Sofmax").find("did you mean level1/23 (Softmax)") != std::string::npos);
  CHECK(Complaint(set, "SOFTSIGN").find("did you mean level1/30 (Softsign)") != std::string::npos);
  CHECK(Complaint(set, "19").find("did you mean level1/19 (ReLU)") != std::string::npos);
  CHECK(Complaint(set, "level1/101").find("level1/100 (Hinge loss)") != std::string::npos);
  CHECK(Complaint(set, "leve1/19").find("did you mean level1/19 (ReLU)") != std::string::npos);
  CHECK(
      Complaint(set, "something quite different") ==
      "unknown problem 'something quite different' | `kevin problems` lists all; name a file of your own by "
      "its path (my.toml)");
}

TEST_CASE("a problem set goes by the names of its files") {
  std::ifstream file(SourceFolder() / "env/problems/level1/019_relu.toml");
  const std::string relu{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  Folder folder;
  folder.Write("level10/002_b.toml", relu);
  folder.Write("level2/100_a.toml", relu);
  folder.Write("level2/020_b.toml", "broken");
  folder.Write("level1/019_relu.toml", relu);
  folder.Write("mine/own.toml", relu);
  folder.Write("mine/notes.txt", "not a problem");
  const ProblemSet set(folder.path());
  CHECK(set.Ids() ==
        std::vector<std::string>{"level1/19", "level2/20", "level2/100", "level10/2", "mine/own"});

  SECTION("only the file asked for is read") {
    CHECK(set.Find("level1/19").name == "ReLU");
    CHECK(Complaint(set, "level2/20").find("020_b.toml:1: not TOML") != std::string::npos);
  }
  SECTION("a broken file does not stop the offers") {
    CHECK(Complaint(set, "level2/21").find("did you mean level2/20") != std::string::npos);
  }
  SECTION("an id that disagrees with its file's place is refused") {
    CHECK(Complaint(set, "level2/100")
              .find("100_a.toml: id: 'level1/19' does not agree with the path of the file, "
                    "which gives 'level2/100'") != std::string::npos);
  }
  SECTION("a path is read wherever it lies") {
    CHECK(set.Find((folder.path() / "mine/own.toml").string()).id == "level1/19");
  }
  SECTION("two files with one id are refused") {
    folder.Write("level1/19_again.toml", relu);
    CHECK_THROWS_AS(ProblemSet(folder.path()), Error);
  }
}

TEST_CASE("a missing problem folder is named") {
  CHECK_THROWS_AS(ProblemSet("/nonexistent/problems"), Error);
}

TEST_CASE("KEVIN_PROBLEMS chooses the folder") {
  setenv("KEVIN_PROBLEMS", "/somewhere/else", 1);
  CHECK(ProblemSet::DefaultDirectory() == "/somewhere/else");
  unsetenv("KEVIN_PROBLEMS");
  CHECK(std::filesystem::exists(ProblemSet::DefaultDirectory() / "level1/019_relu.toml"));
}

TEST_CASE("dtypes have names, spellings and sizes") {
  CHECK(std::string(DTypeName(DType::kBF16)) == "bfloat16");
  CHECK(std::string(DTypeCpp(DType::kI64)) == "long");
  CHECK(DTypeBytes(DType::kBool) == 1);
  CHECK(ElementCount({}) == 1);
  CHECK(ElementCount({3, 4}) == 12);
}

}  // namespace
}  // namespace kevin
