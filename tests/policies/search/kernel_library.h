#pragma once
// Compiles many candidates in a few g++ runs and loads them.

#include <string>
#include <vector>

namespace kevin::test {

class KernelLibrary {
 public:
  // Each source is a whole candidate; `flags` go to g++ after -std=c++20 -march=native -fopenmp; `head` is
  // what all of them start with. Throws std::runtime_error with the compiler's words.
  KernelLibrary(const std::vector<std::string>& sources, const std::string& flags,
                const std::string& head = "");
  ~KernelLibrary();
  KernelLibrary(const KernelLibrary&) = delete;
  KernelLibrary& operator=(const KernelLibrary&) = delete;

  // Calls candidate `index`. `tensors` are inputs, then outputs, as launch takes them; 2 to 4 of them.
  void Launch(size_t index, const std::vector<void*>& tensors) const;

 private:
  std::string folder_;
  std::vector<void*> handles_, functions_;
};

// Whether g++ accepts `source` with `flags` (for machines other than this one).
bool Compiles(const std::string& source, const std::string& flags);

}  // namespace kevin::test
