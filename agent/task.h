#pragma once
// An episode so far as plain data (Task in policies/policy.h), for policies that read no prompt, and the graphs of the
// reference for those that lower it to stages. Any thread.

#include <functional>
#include <string>
#include <vector>

#include "agent/conversation.h"
#include "env/problem/problem.h"
#include "policies/policy.h"
#include "trajectories/records.h"

namespace kevin {

// Gives the graph of a reference at a size: Environment::Graph, or a GraphSource.
using GraphFunction = std::function<std::string(const Problem& problem, const std::string& size)>;

// One a shape. A graph that cannot be had is for the policy to judge: TaskShape::no_graph says why.
std::vector<TaskShape> ShapeGraphs(const Problem& problem, const std::string& size,
                                   const GraphFunction& graph_of);

// `turns` as in BuildMessages. Pure.
Task BuildTask(const ConversationContext& context, const std::vector<TurnRecord>& turns);

}  // namespace kevin
