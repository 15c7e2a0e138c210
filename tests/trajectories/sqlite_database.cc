#include "tests/trajectories/sample_records.h"
#include "tests/trajectories/test_database.h"

namespace kevin {

struct TestDatabase::Impl {
  TemporaryFolder folder;
};

TestDatabase::TestDatabase() : impl_(std::make_unique<Impl>()) {
  address_ = (impl_->folder / "kevin.db").string();
}
TestDatabase::~TestDatabase() = default;

std::string TestDatabase::name() const { return address_; }
Database TestDatabase::Look() const { return kevin::Look(address_); }
std::string TestDatabase::AsTextIsKept(const std::string& text) { return text; }

}  // namespace kevin
