#pragma once
// A ModelApi on a TCP port or a Unix socket. The only user of cpp-httplib.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "policies/local/serve/model_api.h"
#include "policies/local/serve/model_options.h"

namespace kevin::local {

class HttpServer {
 public:
  // Binds and listens; answers requests from then on, with a thread for each connection. Throws
  // Error(kBadRequest) when the address is not available, and as RequestGate does. request_gate.h says which
  // requests are answered, HttpServerOptions within which limits; a refused one gets OpenAI's form of an error
  // (400, 401, 403, 408, 413, 415, 431, 503) and the end of its connection.
  HttpServer(ModelApi& api, const HttpServerOptions& options);
  ~HttpServer();  // ends connections and cancels replies in progress
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;  // 0 on a Unix socket
  // What is unsafe about the file of keys, one line each.
  const std::vector<std::string>& Warnings() const;
  std::string Url() const;  // "http://127.0.0.1:8000/v1", "unix:/run/model.sock"

 private:
  class Listener;
  const std::unique_ptr<Listener> listener_;
};

}  // namespace kevin::local
