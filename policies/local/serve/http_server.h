#pragma once
// A ModelApi on a TCP port or a Unix socket. The only user of cpp-httplib.

#include <functional>
#include <memory>
#include <string>

#include "policies/local/serve/model_api.h"
#include "policies/local/serve/model_options.h"

namespace kevin::local {

class HttpServer {
 public:
  // Binds and listens; answers requests from then on, with a thread for each connection. Throws
  // Error(kBadRequest) when the address is not available.
  HttpServer(ModelApi& api, const HttpServerOptions& options);
  ~HttpServer();  // ends connections and cancels replies in progress
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;         // 0 on a Unix socket
  std::string Url() const;  // "http://127.0.0.1:8000/v1", "unix:/run/model.sock"

 private:
  class Listener;
  const std::unique_ptr<Listener> listener_;
};

}  // namespace kevin::local
