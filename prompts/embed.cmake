# Writes a C++ file with every prompt as a string: cmake -DOUT=file -DPROMPTS="a.md;b.md" -P embed.cmake
set(entries "")
set(hashes "")
foreach(path IN LISTS PROMPTS)
  get_filename_component(name ${path} NAME_WE)
  file(READ ${path} text)
  file(SHA256 ${path} hash)
  string(APPEND hashes "${name} ${hash}\n")
  string(APPEND entries "    {\"${name}\", R\"kevin_prompt(${text})kevin_prompt\"},\n")
endforeach()
string(SHA256 set_hash "${hashes}")
file(WRITE ${OUT} "#include \"prompts/prompts.h\"

namespace kevin {

const std::vector<EmbeddedPrompt>& EmbeddedPrompts() {
  static const std::vector<EmbeddedPrompt> prompts = {
${entries}  };
  return prompts;
}

const char* EmbeddedPromptSetHash() { return \"${set_hash}\"; }

}  // namespace kevin
")
