#pragma once
// A ModelApi on a TCP port or a Unix socket. The only part of Kevin that knows cpp-httplib.

#include <functional>
#include <memory>
#include <string>

#include "policies/local/serve/model_api.h"
#include "policies/local/serve/model_options.h"

namespace kevin::local {

class HttpServer {
 public:
  // Binds and listens; requests are answered from then on, each connection by a thread of its own. Throws
  // Error(kBadRequest) when the address cannot be had.
  HttpServer(ModelApi& api, const HttpServerOptions& options);
  ~HttpServer();  // ends connections; replies in progress are cancelled
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;         // 0 on a Unix socket
  std::string Url() const;  // "http://127.0.0.1:8000/v1", "unix:/run/model.sock"

 private:
  class Listener;
  const std::unique_ptr<Listener> listener_;
};

}  // namespace kevin::local
