#include "env/gpu/compile/compiler_protocol.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace kevin {
namespace {

class Writer {
 public:
  void Number(uint64_t value) { bytes_.append(reinterpret_cast<const char*>(&value), sizeof(value)); }
  void Text(const std::string& text) {
    Number(text.size());
    bytes_ += text;
  }
  void Texts(const std::vector<std::string>& texts) {
    Number(texts.size());
    for (const std::string& text : texts) Text(text);
  }
  std::string Take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Parser {
 public:
  explicit Parser(std::string_view bytes) : bytes_(bytes) {}
  uint64_t Number() {
    uint64_t value = 0;
    if (bytes_.size() < sizeof(value)) {
      ok_ = false;
      return 0;
    }
    std::memcpy(&value, bytes_.data(), sizeof(value));
    bytes_.remove_prefix(sizeof(value));
    return value;
  }
  std::string Text() {
    const uint64_t size = Number();
    if (!ok_ || size > bytes_.size()) {
      ok_ = false;
      return {};
    }
    std::string text(bytes_.substr(0, size));
    bytes_.remove_prefix(size);
    return text;
  }
  std::vector<std::string> Texts() {
    std::vector<std::string> texts;
    for (uint64_t count = Number(); ok_ && count > 0; --count) texts.push_back(Text());
    return texts;
  }
  bool Done() const { return ok_ && bytes_.empty(); }
  bool ok() const { return ok_; }

 private:
  std::string_view bytes_;
  bool ok_ = true;
};

}  // namespace

std::string ToBytes(const CompilerRequest& request) {
  Writer writer;
  writer.Text(request.kind);
  writer.Text(request.text);
  writer.Texts(request.options);
  writer.Texts(request.names);
  writer.Number(request.headers.size());
  for (const auto& [name, text] : request.headers) {
    writer.Text(name);
    writer.Text(text);
  }
  return writer.Take();
}

std::string ToBytes(const CompilerReply& reply) {
  Writer writer;
  writer.Number(static_cast<uint64_t>(reply.status));
  writer.Text(reply.log);
  writer.Text(reply.cubin);
  writer.Text(reply.ptx);
  writer.Texts(reply.lowered_names);
  return writer.Take();
}

bool FromBytes(std::string_view bytes, CompilerRequest* request) {
  Parser parser(bytes);
  request->kind = parser.Text();
  request->text = parser.Text();
  request->options = parser.Texts();
  request->names = parser.Texts();
  for (uint64_t count = parser.Number(); parser.ok() && count > 0; --count) {
    std::string name = parser.Text();
    request->headers.emplace_back(std::move(name), parser.Text());
  }
  return parser.Done();
}

bool FromBytes(std::string_view bytes, CompilerReply* reply) {
  Parser parser(bytes);
  const uint64_t status = parser.Number();
  if (status > static_cast<uint64_t>(CompilerStatus::kNotUsable)) return false;
  reply->status = static_cast<CompilerStatus>(status);
  reply->log = parser.Text();
  reply->cubin = parser.Text();
  reply->ptx = parser.Text();
  reply->lowered_names = parser.Texts();
  return parser.Done();
}

bool WriteMessage(int fd, const std::string& bytes) {
  const uint64_t size = bytes.size();
  std::string frame(reinterpret_cast<const char*>(&size), sizeof(size));
  frame += bytes;
  for (size_t at = 0; at < frame.size();) {
    const ssize_t n = send(fd, frame.data() + at, frame.size() - at, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += static_cast<size_t>(n);
  }
  return true;
}

bool ReadMessage(int fd, std::string* bytes) {
  const auto read_all = [fd](char* to, size_t size) {
    for (size_t at = 0; at < size;) {
      const ssize_t n = read(fd, to + at, size - at);
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;
      at += static_cast<size_t>(n);
    }
    return true;
  };
  uint64_t size = 0;
  if (!read_all(reinterpret_cast<char*>(&size), sizeof(size)) || size > kMaxMessageBytes) return false;
  bytes->resize(size);
  return read_all(bytes->data(), size);
}

}  // namespace kevin
