#pragma once
// Loops of a recorded graph, kept where all iterations are alike. For env/reference/graph.cc alone.

#include "env/reference/graph_recorder.h"

namespace kevin {

// Replaces the iterations of loops of more than kLongestUnrolledLoop by one "loop" node each where they are alike
// (env/reference/graph.h); other loops stay unrolled.
void FoldLoops(RecordedGraph* graph);

// Removes nodes without a use, views that change nothing and repetitions, and numbers the values in the order in which they appear.
void Compact(RecordedGraph* graph);

nlohmann::ordered_json NodeToJson(const RecordedNode& node);

}  // namespace kevin
