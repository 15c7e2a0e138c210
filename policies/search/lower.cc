#include "policies/search/lower.h"

namespace kevin::search {

Program Lower(const Graph&, const Task&) { throw Unsupported("not written yet"); }
void Fuse(Program&) {}

}  // namespace kevin::search
namespace kevin::search {
void PlaceWorkspaces(Program&) {}
Graph ParseGraph(const std::string&) { throw Unsupported("not written yet"); }
}  // namespace kevin::search
