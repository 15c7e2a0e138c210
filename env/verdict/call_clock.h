#pragma once
// Two clocks of one call: the events beside it on the device, whose memory device code could forge, and the wall
// clock of the trusted process, which it cannot reach. What the wall clock sees beyond the events (the way to the
// device and back) is the same for a call and for an empty one, which runs no code of the candidate; empty calls
// are made between the others, all in the same way. So every timed call is checked, and no call is made for the
// check alone.
//
// A call is disbelieved where its excess, wall clock less events, differs from that of the empty calls by more than
// 3 % of its time, 1 us and 5 spreads of the empty calls; its round does not count. (A lower excess comes from a
// call that began before the wall clock was read.) All calls together are
// contradicted where more than half are disbelieved, or where the mean excess of the believed ones lies above that
// of the empty ones by more than 3 % of their time, 1 us and 2 standard errors. An interruption of the host makes
// single calls disbelieved, of either sort alike. Pure arithmetic; one thread.

#include <string>
#include <vector>

namespace kevin {

class CallClock {
 public:
  // Microseconds, as in all of this class.
  void AddEmpty(double event_us, double wall_us);
  // Adds a call. False: its two times disagree. Needs kLeastEmpty empty calls before the first one.
  bool Believes(double event_us, double wall_us);
  // Empty, or why the times cannot be reported, for the author.
  std::string Contradiction() const;
  // A quarter of the empty calls take 20 us longer than most of the others: processes wait for a processor. Then a
  // contradiction says nothing about the candidate, none of whose code runs in empty calls.
  bool IsHostBusy() const;

  static constexpr int kLeastEmpty = 12;

 private:
  double Spread(double centre_us) const;

  struct Call {
    double event_us = 0, excess_us = 0;
    bool believed = true;
  };
  std::vector<double> empty_excess_us_;
  std::vector<Call> calls_;
};

}  // namespace kevin
