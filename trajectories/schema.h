#pragma once
// schema.sql, built into the program, and the two numbers that identify a file of this format.

namespace kevin {

extern const char kSchema[];                // the whole of schema.sql, zero-terminated
constexpr int kApplicationId = 1264940654;  // "Kevn"; PRAGMA application_id
constexpr int kSchemaVersion = 4;           // PRAGMA user_version

}  // namespace kevin
