#include "policies/remote/curl_api.h"

#include <dlfcn.h>

#include <string>

#include "env/error.h"

namespace kevin::remote {
namespace {

[[noreturn]] void Throw(const std::string& why) {
  throw Error(ExitCode::kMachine, "libcurl, which asks servers, cannot be used: " + why,
              "install it: apt-get install libcurl4");
}

template <class Function>
void Load(void* library, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(dlsym(library, name));
  if (*function == nullptr) Throw(std::string("it lacks ") + name);
}

CurlApi LoadAll() {
  void* library = nullptr;
  for (const char* name : {"libcurl.so.4", "libcurl-gnutls.so.4"}) {
    if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  }
  if (library == nullptr) Throw(dlerror());
  CurlApi api{};
  Load(library, "curl_global_init", &api.global_init);
  Load(library, "curl_easy_init", &api.easy_init);
  Load(library, "curl_easy_cleanup", &api.easy_cleanup);
  Load(library, "curl_easy_reset", &api.easy_reset);
  Load(library, "curl_easy_setopt", &api.easy_setopt);
  Load(library, "curl_easy_strerror", &api.easy_strerror);
  Load(library, "curl_multi_init", &api.multi_init);
  Load(library, "curl_multi_cleanup", &api.multi_cleanup);
  Load(library, "curl_multi_add_handle", &api.multi_add_handle);
  Load(library, "curl_multi_remove_handle", &api.multi_remove_handle);
  Load(library, "curl_multi_perform", &api.multi_perform);
  Load(library, "curl_multi_poll", &api.multi_poll);
  Load(library, "curl_multi_info_read", &api.multi_info_read);
  Load(library, "curl_slist_append", &api.slist_append);
  Load(library, "curl_slist_free_all", &api.slist_free_all);
  Load(library, "curl_getdate", &api.getdate);
  if (api.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) Throw("it cannot be initialised");
  return api;
}

}  // namespace

const CurlApi& Curl() {
  static const CurlApi api = LoadAll();
  return api;
}

}  // namespace kevin::remote
