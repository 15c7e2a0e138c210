# cmake -DINPUT=schema.sql -DOUTPUT=schema.cc -P embed.cmake: the bytes of a text as `const char kevin::kSchema[]`.
file(READ ${INPUT} bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "((0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,))" "\\1\n" bytes "${bytes}")
file(WRITE ${OUTPUT} "#include \"trajectories/schema_text.h\"\n\nnamespace kevin {\nconst char kSchema[] = {\n${bytes}0};\n}\n")
