#pragma once
// The text of a reference in Python's words instead of TorchScript's. Pure; any thread.

#include <functional>
#include <string>
#include <string_view>

namespace kevin {

// TorchScript text with Python's names of the operators: "torch.linear" is "F.linear", "torch.linalg_norm" is
// "torch.linalg.norm", and what Python has under no name of its own is "torch.ops.aten.NAME".
std::string PythonOperators(const std::string& torchscript);

// Calls `replace` with each whole word that begins outside a string's quotes and is no attribute; its result takes the
// word's place.
std::string ReplaceWords(std::string_view text, const std::function<std::string(std::string_view)>& replace);

}  // namespace kevin
