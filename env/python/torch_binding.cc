#include "env/python/torch_binding.h"

#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <dlfcn.h>

#include <cstring>
#include <memory>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

// --- Python's stable ABI, as far as it is used here ---

extern "C" {
struct _object;
using PyObject = _object;
using Py_ssize_t = ssize_t;
struct PyMethodDef {
  const char* ml_name;
  PyObject* (*ml_meth)(PyObject*, PyObject*);
  int ml_flags;
  const char* ml_doc;
};
extern PyObject* PyExc_RuntimeError;
extern PyObject* PyExc_TypeError;
extern PyObject* PyExc_IndexError;
extern PyObject* PyExc_NotImplementedError;
extern PyObject* PyExc_ValueError;
PyObject* PyCFunction_NewEx(PyMethodDef*, PyObject* self, PyObject* module);
PyObject* PyCapsule_New(void* pointer, const char* name, void (*destructor)(PyObject*));
void* PyCapsule_GetPointer(PyObject*, const char* name);
void PyErr_Clear();
PyObject* PyErr_Occurred();
void PyErr_SetString(PyObject* type, const char* text);
double PyFloat_AsDouble(PyObject*);
PyObject* PyFloat_FromDouble(double);
PyObject* PyBool_FromLong(long);
PyObject* PyLong_FromLongLong(long long);
long long PyLong_AsLongLong(PyObject*);
PyObject* PyNumber_Index(PyObject*);
PyObject* PyObject_GetAttrString(PyObject*, const char*);
int PyObject_SetAttrString(PyObject*, const char*, PyObject*);
int PyObject_IsInstance(PyObject*, PyObject*);
int PyObject_IsTrue(PyObject*);
PyObject* PyList_New(Py_ssize_t);
int PyList_SetItem(PyObject*, Py_ssize_t, PyObject*);
PyObject* PyList_GetItem(PyObject*, Py_ssize_t);
PyObject* PyTuple_New(Py_ssize_t);
int PyTuple_SetItem(PyObject*, Py_ssize_t, PyObject*);
PyObject* PyTuple_GetItem(PyObject*, Py_ssize_t);
Py_ssize_t PyTuple_Size(PyObject*);
Py_ssize_t PyObject_Size(PyObject*);
PyObject* PyUnicode_FromStringAndSize(const char*, Py_ssize_t);
const char* PyUnicode_AsUTF8AndSize(PyObject*, Py_ssize_t*);
int PyUnicode_CompareWithASCIIString(PyObject*, const char*);
void Py_IncRef(PyObject*);
void Py_DecRef(PyObject*);
extern PyObject _Py_NoneStruct;
extern PyObject _Py_TrueStruct;
extern PyObject _Py_FalseStruct;
extern PyObject PyList_Type, PyTuple_Type, PyUnicode_Type, PyFloat_Type;
}

namespace kevin_torch {
namespace {

constexpr int kFastCallWithKeywords = 0x0080 | 0x0002;  // METH_FASTCALL | METH_KEYWORDS
constexpr int kMostArguments = 64;

// What torch's Python library offers; set once by KevinPrepareBinding.
struct TorchInPython {
  size_t tensor_offset = 0;  // of the at::Tensor in a tensor's object
  PyObject* tensor_class = nullptr;
  PyObject* (*wrap)(const at::TensorBase&) = nullptr;  // THPVariable_Wrap
};
TorchInPython torch_in_python;

PyObject* ObjectOf(void* object) { return static_cast<PyObject*>(object); }

const at::Tensor& TensorIn(const PyObject* object) {
  return *reinterpret_cast<const at::Tensor*>(reinterpret_cast<const char*>(object) +
                                              torch_in_python.tensor_offset);
}

bool IsA(PyObject* object, PyObject* type) {
  const int is_instance = PyObject_IsInstance(object, type);
  if (is_instance < 0) PyErr_Clear();
  return is_instance == 1;
}

void* ToTensor(void* object) {
  if (!IsA(ObjectOf(object), torch_in_python.tensor_class)) return nullptr;
  return HandleOfTensor(TensorIn(ObjectOf(object)));
}

// As pybind11: what has __index__, no floating-point number.
bool ToInteger(void* object, int64_t* value) {
  if (IsA(ObjectOf(object), &PyFloat_Type)) return false;
  PyObject* number = PyNumber_Index(ObjectOf(object));
  if (number == nullptr) {
    PyErr_Clear();
    return false;
  }
  *value = PyLong_AsLongLong(number);
  Py_DecRef(number);
  if (PyErr_Occurred() == nullptr) return true;
  PyErr_Clear();
  return false;
}

bool ToReal(void* object, double* value) {
  *value = PyFloat_AsDouble(ObjectOf(object));
  if (PyErr_Occurred() == nullptr) return true;
  PyErr_Clear();
  return false;
}

bool ToBool(void* object, bool* value) {
  if (object == &_Py_TrueStruct || object == &_Py_FalseStruct || object == &_Py_NoneStruct) {
    *value = object == &_Py_TrueStruct;
    return true;
  }
  if (IsA(ObjectOf(object), &PyUnicode_Type)) return false;
  const int is_true = PyObject_IsTrue(ObjectOf(object));
  if (is_true < 0) PyErr_Clear();
  *value = is_true == 1;
  return is_true >= 0;
}

const char* ToText(void* object, size_t* bytes) {
  if (!IsA(ObjectOf(object), &PyUnicode_Type)) return nullptr;
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(ObjectOf(object), &size);
  if (text == nullptr) PyErr_Clear();
  *bytes = static_cast<size_t>(size);
  return text;
}

int64_t SequenceSize(void* object) {
  if (!IsA(ObjectOf(object), &PyList_Type) && !IsA(ObjectOf(object), &PyTuple_Type)) return -1;
  return PyObject_Size(ObjectOf(object));
}
void* SequenceItem(void* object, int64_t index) {
  return IsA(ObjectOf(object), &PyList_Type) ? PyList_GetItem(ObjectOf(object), index)
                                             : PyTuple_GetItem(ObjectOf(object), index);
}
bool IsNone(void* object) { return object == &_Py_NoneStruct; }

void* FromNone() {
  Py_IncRef(&_Py_NoneStruct);
  return &_Py_NoneStruct;
}
void* FromTensor(const void* handle) {
  return handle == nullptr ? FromNone() : torch_in_python.wrap(TensorOfHandle(handle));
}
void* FromSequence(void* const* objects, size_t count, bool is_tuple) {
  const auto size = static_cast<Py_ssize_t>(count);
  PyObject* made = is_tuple ? PyTuple_New(size) : PyList_New(size);
  for (Py_ssize_t i = 0; i < size; ++i)
    is_tuple ? PyTuple_SetItem(made, i, ObjectOf(objects[i])) : PyList_SetItem(made, i, ObjectOf(objects[i]));
  return made;
}

// --- Calls ---

// Puts the arguments with a name at their places. False: one is missing, unknown or given twice.
bool PlaceKeywords(const BoundFunction& function, PyObject* const* arguments, Py_ssize_t positional,
                   PyObject* names, void** placed) {
  const Py_ssize_t named = names == nullptr ? 0 : PyTuple_Size(names);
  if (positional + named != function.count || (named > 0 && function.names == nullptr)) return false;
  for (Py_ssize_t i = 0; i < positional; ++i) placed[i] = arguments[i];
  for (Py_ssize_t i = 0; i < named; ++i) {
    Py_ssize_t at = positional;
    while (at < function.count &&
           PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, i), function.names[at]) != 0)
      ++at;
    if (at == function.count || placed[at] != nullptr) return false;
    placed[at] = arguments[positional + i];
  }
  return true;
}

PyObject* Raised(PyObject* type, const std::string& text) {
  PyErr_SetString(type, text.c_str());
  return nullptr;
}

PyObject* CallBound(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  const auto* function = static_cast<const BoundFunction*>(PyCapsule_GetPointer(self, nullptr));
  void* placed[kMostArguments] = {};
  void* result = nullptr;
  try {
    if (PlaceKeywords(*function, arguments, count, names, placed) &&
        function->call(function, placed, &result))
      return ObjectOf(result);
    return Raised(PyExc_TypeError, std::string(function->name) + "(): incompatible function arguments");
  } catch (const c10::IndexError& error) {
    return Raised(PyExc_IndexError, error.what_without_backtrace());
  } catch (const c10::NotImplementedError& error) {
    return Raised(PyExc_NotImplementedError, error.what_without_backtrace());
  } catch (const c10::Error& error) {
    return Raised(PyExc_RuntimeError, error.what_without_backtrace());
  } catch (const NotImplemented& error) {
    return Raised(PyExc_NotImplementedError, error.what());
  } catch (const std::out_of_range& error) {
    return Raised(PyExc_IndexError, error.what());
  } catch (const std::invalid_argument& error) {
    return Raised(PyExc_ValueError, error.what());
  } catch (const std::exception& error) {
    return Raised(PyExc_RuntimeError, error.what());
  } catch (...) {
    return Raised(PyExc_RuntimeError, "an exception of unknown type");
  }
}

}  // namespace

void AddPythonFunctions(Table* table) {
  table->to_tensor = ToTensor;
  table->to_integer = ToInteger;
  table->to_real = ToReal;
  table->to_bool = ToBool;
  table->to_text = ToText;
  table->sequence_size = SequenceSize;
  table->sequence_item = SequenceItem;
  table->is_none = IsNone;
  table->from_tensor = FromTensor;
  table->from_integer = [](int64_t value) -> void* { return PyLong_FromLongLong(value); };
  table->from_real = [](double value) -> void* { return PyFloat_FromDouble(value); };
  table->from_bool = [](bool value) -> void* { return PyBool_FromLong(value); };
  table->from_text = [](const char* text, size_t bytes) -> void* {
    return PyUnicode_FromStringAndSize(text, static_cast<Py_ssize_t>(bytes));
  };
  table->from_none = FromNone;
  table->from_sequence = FromSequence;
}

}  // namespace kevin_torch

using namespace kevin_torch;

bool KevinPrepareBinding() {
  constexpr size_t kOffset = 16;  // behind the reference count and the type
  void* library = dlopen("libtorch_python.so", RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return false;
  auto* type = static_cast<PyObject**>(dlsym(library, "THPVariableClass"));
  void* wrap = dlsym(library, "_Z16THPVariable_WrapRKN2at10TensorBaseE");
  if (type == nullptr || *type == nullptr || wrap == nullptr) return false;
  torch_in_python = {kOffset, *type, reinterpret_cast<PyObject* (*)(const at::TensorBase&)>(wrap)};
  const at::Tensor known = at::empty({0});
  PyObject* object = torch_in_python.wrap(known);
  const c10::TensorImpl* found = nullptr;
  std::memcpy(&found, reinterpret_cast<const char*>(object) + kOffset, sizeof(found));
  const bool is_there = found == known.unsafeGetTensorImpl();
  Py_DecRef(object);
  return is_there;
}

bool KevinBindModule(const void* extension, void* module) {
  const auto* bound = static_cast<const BoundModule*>(extension);
  if (bound == nullptr || bound->version != kTableVersion) return false;
  std::set<std::string> names;
  for (size_t i = 0; i < bound->count; ++i) {
    const BoundFunction& function = bound->functions[i];
    if (!names.insert(function.name).second || function.count > kMostArguments) return false;
    // The definition must outlive the function, and modules are never freed.
    auto* definition = new PyMethodDef{
        function.name,
        reinterpret_cast<PyObject* (*)(PyObject*, PyObject*)>(reinterpret_cast<void*>(CallBound)),
        kFastCallWithKeywords, function.doc};
    PyObject* self = PyCapsule_New(const_cast<BoundFunction*>(&function), nullptr, nullptr);
    PyObject* callable = PyCFunction_NewEx(definition, self, nullptr);
    Py_DecRef(self);
    const int status = PyObject_SetAttrString(ObjectOf(module), function.name, callable);
    Py_DecRef(callable);
    if (status != 0) return false;
  }
  return true;
}
