#pragma once
// Problems with input-outputs that the search policy writes: what is written of them, and when the old values are read.

#include <string>
#include <vector>

#include "env/problem/problem.h"

namespace kevin {

struct InOutCase {
  std::string name, body;       // of `forward`, indented by four
  bool has_output = false;      // `out` [B, N]
  bool needs_workspace = true;  // false: all of it can be done in place, which the text must do
  bool moves_position = false;  // `position` is a float that is written too, and stands before `keys`
};

// keys [B, N, D] is written; x [B, 1, D], y [B, N, D], position [1] below N.
inline std::vector<InOutCase> InOutCases() {
  const std::string read = "    out = torch.sum(keys * x, 2)\n",
                    write = "    keys.index_copy_(1, position, x)\n", place = "    place = position.long()\n",
                    move = "    position.copy_((keys.size(1) - 1) - position)\n    return out\n";
  return {
      {"write, then read", write + "    return torch.sum(keys * x, 2)\n", true, false},
      {"read, then write", read + write + "    return out\n", true, false},
      {"write what was read", read + "    keys[:, 3] = keys[:, 5] * 2.0\n    return out\n", true},
      {"a slice", "    keys[:, 2:6] = y[:, 1:5] + x\n", false, false},
      {"every other row", "    keys[:, 0:N2:2] = y[:, 0:N2:2]\n", false, false},
      {"one row", "    keys[:, 4] = torch.sum(y, 1)\n    return torch.sum(keys, 2)\n", true},
      {"two writes", write + "    keys[:, 0] = 1.0\n    return torch.sum(keys * x, 2)\n", true, false},
      {"all elements", "    keys.mul_(0.5).add_(y)\n", false, false},
      {"all elements, read before",
       "    out = torch.sum(keys * x, 2)\n    keys.copy_(y * x)\n    return out\n", true, false},
      {"a norm", "    keys.copy_(keys * torch.rsqrt(torch.mean(keys * keys, 2, True) + 0.01) * x)\n", false},
      {"a softmax of rows", "    keys.copy_(torch.softmax(keys, 2))\n", false, false},
      {"moved by one", "    keys.copy_(torch.cat([keys[:, 1:], x], 1))\n    return torch.sum(keys, 2)\n",
       true},
      {"reversed", "    keys.copy_(torch.flip(keys, [1]))\n", false},
      {"a masked part", "    keys.masked_fill_(y > 0.0, 0.25)\n    return torch.sum(keys, 2)\n", true},
      {"a product", "    keys.add_(torch.matmul(y, torch.matmul(x.transpose(1, 2), x)))\n", false},
      {"a product with itself", "    keys.copy_(torch.matmul(torch.matmul(keys, keys.transpose(1, 2)), y))\n",
       false},
      {"through a view",
       "    rows = keys.view(-1, keys.size(2))\n    rows.add_(x[0])\n    return torch.sum(keys, 2)\n", true},
      {"at a place that moves", read + place + "    keys.index_copy_(1, place, x)\n" + move, true, true,
       true},
      {"at a place that moves, by index_put", read + place + "    keys[:, place] = x\n" + move, true, true,
       true},
      {"at a place that moves, by scatter",
       read + place + "    keys.scatter_(1, place.view(1, 1, 1).expand(x.size(0), 1, x.size(2)), x)\n" + move,
       true, true, true},
      {"at places that the old values name",
       "    named = (torch.flip(keys[:, 0:1], [2]) > 0.0).long()\n    keys.scatter_(1, named, x)\n", false},
  };
}

inline Problem InOutProblem(const InOutCase& one, int64_t rows = 24) {
  std::string body = one.body;
  for (size_t at = 0; (at = body.find("N2", at)) != std::string::npos;)
    body.replace(at, 2, std::to_string(rows));
  std::string text = "id = \"mine/inout\"\nname = \"" + one.name +
                     "\"\nfamilies = [\"elementwise\"]\nreference = '''\n" + "def forward(" +
                     (one.moves_position ? "position, x, keys, y" : "x, keys, y, position") + "):\n" + body +
                     "'''\n[sizes.small]\nB = 3\nN = " + std::to_string(rows) + "\nD = 16\n";
  const auto input = [&](const std::string& name, const std::string& shape, const std::string& more) {
    text += "[[inputs]]\nname = \"" + name + "\"\nshape = " + shape + "\n" + more;
  };
  const std::string below_n = "distribution = \"uniform01\"\nscale = \"N";
  if (one.moves_position) input("position", "[1]", below_n + "-1\"\nrole = \"inout\"\n");
  input("x", "[\"B\", 1, \"D\"]", "");
  input("keys", "[\"B\", \"N\", \"D\"]", "role = \"inout\"\n");
  input("y", "[\"B\", \"N\", \"D\"]", "");
  if (!one.moves_position) input("position", "[1]", below_n + "\"\ndtype = \"int64\"\n");
  if (one.has_output) text += "[[outputs]]\nname = \"out\"\nshape = [\"B\", \"N\"]\n";
  text +=
      "[cost]\nflops = \"64*B*N*D\"\nbytes = \"4*B*N*D\"\nmin_flops = 0\nmin_bytes = 0\n[check]\nreduction = \"N*D\"\n";
  return ParseProblem(text, "inout.toml");
}

}  // namespace kevin
