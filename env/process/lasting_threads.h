#pragma once
// Threads that live until the process ends. Whatever starts child processes on a thread of its own needs one of these: a
// child (Spawn) is killed when the thread that started it ends, and evaluators, compilers and runners outlive the
// request that started them.

#include <functional>
#include <vector>

namespace kevin {

// Runs the tasks at the same time, the first on this thread, and waits for all. They must not throw. Any thread.
void RunSideBySide(const std::vector<std::function<void()>>& tasks);
// One task `times` times, at least once.
void RunSideBySide(int times, const std::function<void()>& task);

}  // namespace kevin
