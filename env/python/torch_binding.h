#pragma once
// Functions of extensions as functions of Python, without pybind11 and without Python's headers: the few names of Python's
// stable ABI that this takes are declared in torch_binding.cc, and found in the interpreter that loads
// kevin-python-worker.so. A call costs a fraction of a microsecond.

#include <ATen/core/Tensor.h>

#include "env/python/headers/kevin/torch_table.h"

namespace kevin_torch {

// Sets the members of `table` that convert Python objects.
void AddPythonFunctions(Table* table);

// Of torch_table.cc: a tensor of a handle, and an owned handle of a tensor.
at::Tensor TensorOfHandle(const void* handle);
void* HandleOfTensor(at::Tensor tensor);

}  // namespace kevin_torch

extern "C" {

// Finds where torch keeps the tensor in a Python object; before the first extension is bound. False: not where torch 2.11 has
// it, and extensions must be compiled with torch's headers. With Python's lock.
bool KevinPrepareBinding();

// Adds the functions of a loaded extension to the module object. False: a name stands twice (an overload), or the table is of
// another version. With Python's lock.
bool KevinBindModule(const void* module_of_extension, void* module);
}
