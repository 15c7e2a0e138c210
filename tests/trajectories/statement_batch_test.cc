#include "trajectories/statement_batch.h"

#include "tests/catch.h"

namespace kevin {
namespace {

constexpr char kBlob[] = "INSERT INTO blobs(hash, size) VALUES (?, ?) ON CONFLICT DO NOTHING";
constexpr char kTurn[] =
    "INSERT INTO turns(episode, turn) VALUES (?, ?) ON CONFLICT DO NOTHING RETURNING turn";
constexpr char kSample[] = "INSERT INTO samples(evaluation) VALUES (?)";

TEST_CASE("rows for one table are one statement, tables come in the schema's order") {
  StatementBatch batch;
  CHECK(batch.empty());
  batch.AddInsert(kSample, {"'b'"}, false);
  batch.AddInsert(kTurn, {"'e'", "'2'"}, true);
  batch.AddInsert(kBlob, {"'y'", "NULL"}, false);
  batch.AddInsert(kSample, {"'a'"}, false);
  batch.AddInsert(kTurn, {"'e'", "'1'"}, true);
  batch.AddInsert(kBlob, {"'x'", "'4'"}, false);
  CHECK_FALSE(batch.empty());
  CHECK(batch.TakeText() ==
        "INSERT INTO blobs(hash, size) VALUES ('x', '4'), ('y', NULL) ON CONFLICT DO NOTHING;\n"
        "WITH required AS (INSERT INTO turns(episode, turn) VALUES ('e', '1'), ('e', '2') ON CONFLICT DO "
        "NOTHING RETURNING turn) SELECT 1 / (count(*) = 2)::int FROM required;\n"
        "INSERT INTO samples(evaluation) VALUES ('b'), ('a');\n");
  CHECK(batch.empty());
  CHECK(batch.TakeText().empty());
}

TEST_CASE("a statement in order stands between the inserts, one ahead before those of its row") {
  StatementBatch batch;
  batch.AddInsert(kSample, {"'1'"}, false);
  batch.Add("UPDATE one", BatchOrder::kInOrder);
  batch.AddInsert(kSample, {"'2'"}, false);
  batch.Add("UPDATE two", BatchOrder::kAhead);
  batch.AddInsert(kSample, {"'3'"}, false);
  CHECK(batch.TakeText() ==
        "INSERT INTO samples(evaluation) VALUES ('1');\nUPDATE one;\nUPDATE two;\n"
        "INSERT INTO samples(evaluation) VALUES ('2'), ('3');\n");
}

TEST_CASE("what a value holds is no part of the statement") {
  StatementBatch batch;
  batch.AddInsert(kBlob, {"'? ) VALUES (?'", "'1'"}, false);
  CHECK(batch.TakeText() ==
        "INSERT INTO blobs(hash, size) VALUES ('? ) VALUES (?', '1') ON CONFLICT DO NOTHING;\n");
  batch.AddInsert(kSample, {"'x'"}, false);
  CHECK(batch.bytes() > 0);
  batch.Clear();
  CHECK(batch.empty());
  CHECK(batch.TakeText().empty());
}

TEST_CASE("inserts are told from what is none") {
  CHECK(StatementBatch::IsInsert(kBlob));
  CHECK_FALSE(StatementBatch::IsInsert("INSERT INTO a SELECT * FROM b"));
  CHECK_FALSE(StatementBatch::IsInsert("UPDATE a SET b = ' VALUES ('"));
}

}  // namespace
}  // namespace kevin
