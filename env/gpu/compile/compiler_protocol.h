#pragma once
// The protocol between the compile farm and kevin-gpu-compiler on a socket: one request, one reply, each a
// length and that many bytes. The farm trusts no reply: the compiler has read hostile text.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kevin {

inline constexpr int kCompilerSocket = 3;                   // the compiler's end
inline constexpr uint64_t kMaxMessageBytes = 256ULL << 20;  // of a request or reply
inline constexpr uint64_t kMaxRawLogBytes = 4ULL << 20;     // of a compiler's log that are passed on

struct CompilerRequest {
  std::string kind;  // "cuda" or "ptx"
  std::string text;
  std::vector<std::string> options;
  std::vector<std::string> names;                            // name expressions, kind cuda
  std::vector<std::pair<std::string, std::string>> headers;  // name, text; found before those in folders
};

enum class CompilerStatus : uint64_t {
  kCompiled,
  kTextHasErrors,
  kCompilerFailed,  // out of memory, internal error: no statement about the text
  kNotUsable        // the library cannot be loaded or does not know the options; no text would compile
};

struct CompilerReply {
  CompilerStatus status = CompilerStatus::kNotUsable;
  std::string log, cubin, ptx;
  std::vector<std::string> lowered_names;  // of `names`, in order
};

std::string ToBytes(const CompilerRequest& request);
std::string ToBytes(const CompilerReply& reply);
// False for malformed messages.
bool FromBytes(std::string_view bytes, CompilerRequest* request);
bool FromBytes(std::string_view bytes, CompilerReply* reply);

// Blocking, for the compiler. False when the other side has closed.
bool WriteMessage(int fd, const std::string& bytes);
bool ReadMessage(int fd, std::string* bytes);

}  // namespace kevin
