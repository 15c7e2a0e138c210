// The wall clock beside the events, with simulated calls: what a busy host does to correct times, and what forged
// events come to.

#include "env/verdict/call_clock.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>

#include "tests/catch.h"

namespace kevin {
namespace {

// A host that adds to every call the way to the device and back, with jitter, and now and then an interruption.
struct Host {
  double jitter_us = 0.7, interruptions = 0.05, interruption_us = 25;
};

struct Judged {
  std::string contradiction;
  int believed = 0;
  bool is_host_busy = false;
  double mean_us = 0;  // of the believed calls, by their events
};

// `calls` calls that take `true_us`; `reported` gives the time of call i by its events.
Judged Judge(const Host& host, double true_us, const std::function<double(int call)>& reported, unsigned seed,
             int calls = 80) {
  std::mt19937 random(seed);
  std::exponential_distribution<double> jitter(1 / host.jitter_us), delay(1 / host.interruption_us);
  std::bernoulli_distribution interrupted(host.interruptions);
  const auto way_us = [&] { return 12 + jitter(random) + (interrupted(random) ? delay(random) : 0); };
  CallClock clock;
  for (int i = 0; i < CallClock::kLeastEmpty; ++i) clock.AddEmpty(1.2, 1.2 + way_us());
  Judged judged;
  double sum_us = 0;
  for (int i = 0; i < calls; ++i) {
    const bool empty_first = (random() & 1) != 0;
    if (empty_first) clock.AddEmpty(1.2, 1.2 + way_us());
    const double event_us = reported(i);
    if (clock.Believes(event_us, true_us + way_us())) {
      ++judged.believed;
      sum_us += event_us;
    }
    if (!empty_first) clock.AddEmpty(1.2, 1.2 + way_us());
  }
  judged.contradiction = clock.Contradiction();
  judged.is_host_busy = clock.IsHostBusy();
  judged.mean_us = sum_us / std::max(judged.believed, 1);
  return judged;
}

const Host kHosts[] = {{0.7, 0.05, 25}, {0.2, 0, 1}, {3, 0.05, 100}, {1, 0.3, 40}};

}  // namespace

TEST_CASE("correct times are believed, on a busy host too") {
  int contradicted = 0, runs = 0;
  for (const Host& host : kHosts) {
    for (const double us : {2.0, 5.0, 30.0, 800.0}) {
      for (unsigned seed = 0; seed < 200; ++seed, ++runs) {
        const Judged judged = Judge(
            host, us, [&](int) { return us; }, seed, us > 500 ? 8 : 80);
        contradicted += !judged.contradiction.empty();
        CHECK(judged.believed > (us > 500 ? 1 : 40));
      }
    }
  }
  INFO(contradicted << " of " << runs);
  CHECK(contradicted <= runs / 1000);
}

TEST_CASE("what only a busy host contradicts is told from forged times") {
  int contradicted = 0, unexplained = 0, excused = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    // Processes wait for a processor, for milliseconds, in a half of the calls.
    const Judged busy = Judge(
        {1, 0.5, 2000}, 14, [](int) { return 14.0; }, seed, 24);
    contradicted += !busy.contradiction.empty();
    unexplained += !busy.contradiction.empty() && !busy.is_host_busy;
  }
  for (const Host& host : {kHosts[0], kHosts[1], kHosts[2]}) {  // the last one is busy at times
    for (unsigned seed = 0; seed < 100; ++seed) {
      const Judged forged = Judge(
          host, 30, [](int) { return 15.0; }, seed, 24);
      excused += forged.is_host_busy;
    }
  }
  INFO(contradicted << ", " << unexplained << " unexplained; " << excused << " excused");
  CHECK(contradicted > 20);
  CHECK(unexplained == 0);
  CHECK(excused == 0);
}

TEST_CASE("events that say less than the wall clock are contradicted") {
  for (const Host& host : kHosts) {
    for (const double us : {5.0, 30.0, 800.0}) {
      for (const double share : {0.1, 0.5, 0.6}) {
        int found = 0;
        for (unsigned seed = 0; seed < 50; ++seed)
          found += !Judge(
                        host, us, [&](int) { return us * share; }, seed)
                        .contradiction.empty();
        INFO(host.jitter_us << " " << us << " " << share);
        // What is hidden, against what the rule and the noise of 80 calls leave room for.
        if (us * (1 - share) > 0.03 * us + 1.5 + 1.5 * host.jitter_us) CHECK(found >= 49);
      }
    }
  }
  const std::string why = Judge(
                              kHosts[0], 100, [](int) { return 50.0; }, 1)
                              .contradiction;
  const std::string start = "clock: a call takes 50.00 us by its events and ";
  REQUIRE(why.starts_with(start));
  CHECK(std::stod(why.substr(start.size())) == Approx(100).epsilon(0.02));
}

TEST_CASE("a 5 us call cannot be forged by more than the slack, whatever the share of forged calls") {
  for (const double forged_share : {0.1, 0.3, 0.45, 0.6, 0.9}) {
    for (const double to_us : {0.5, 2.0, 3.5}) {
      double worst_us = 5;
      for (unsigned seed = 0; seed < 100; ++seed) {
        std::mt19937 random(seed + 1000);
        std::bernoulli_distribution forged(forged_share);
        const Judged judged = Judge(
            kHosts[0], 5, [&](int) { return forged(random) ? to_us : 5; }, seed);
        if (judged.contradiction.empty()) worst_us = std::min(worst_us, judged.mean_us);
      }
      INFO(forged_share << " " << to_us);
      CHECK(worst_us > 5 - 0.15 - 1 - 0.8);  // 3 %, 1 us, and what the noise of the host hides
    }
  }
}

TEST_CASE("a few forged calls are left out, and nothing is gained") {
  const Judged judged = Judge(
      kHosts[0], 100, [](int i) { return i % 3 == 0 ? 10 : 100; }, 7);
  CHECK(judged.contradiction.empty());
  CHECK(judged.mean_us == 100);
  CHECK(judged.believed > 40);
  CHECK(judged.believed < 60);
}

// It began before the wall clock was read.
TEST_CASE("a call that takes longer by its events than by the wall clock is not believed") {
  const Judged judged = Judge(
      kHosts[0], 10, [](int) { return 30; }, 3);
  CHECK(judged.believed < 5);
  CHECK_FALSE(judged.contradiction.empty());
}

}  // namespace kevin
