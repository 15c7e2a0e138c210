#include "policies/search/lowering.h"
namespace kevin::search {
bool Lowering::Attended(const GraphNode&) { return false; }
bool Lowering::Recurrent(const GraphNode&) { return false; }
bool Lowering::Loss(const GraphNode&) { return false; }
bool Lowering::Loop_(const GraphNode&) { return false; }
bool Lowering::Indexing(const GraphNode&) { return false; }
bool Lowering::Creation(const GraphNode&) { return false; }
}  // namespace kevin::search
