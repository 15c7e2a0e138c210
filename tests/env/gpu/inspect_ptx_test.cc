// What PTX may hold: each rule with a text that breaks it, and tricks that try to hide that.

#include "env/gpu/ptx/inspect_ptx.h"

#include "env/gpu/compile/gpu_module.h"
#include "tests/catch.h"

namespace kevin {
namespace {

// A whole module around a kernel's body; `top` stands before the kernel.
std::string Module(const std::string& body, const std::string& top = "") {
  return "//\n// Generated\n//\n.version 9.0\n.target sm_90a, debug\n.address_size 64\n" + top +
         "\n\t// .globl\tk\n.visible .entry k(\n\t.param .u64 .ptr .global .align 16 k_param_0,\n"
         "\t.param .align 8 .b8 k_param_1[16],\n\t.param .f32 k_param_2\n)\n.maxntid 256, 1, 1\n{\n"
         "\t.reg .pred %p<2>;\n\t.reg .b32 %r<9>, %one;\n\t.reg .b64 %rd<4>;\n\t.reg .f32 %f<9>;\n"
         "\t.loc 1 2 3\n\tld.param.u64 %rd1, [k_param_0];\n" +
         body + "\n$L__BB0_2:\n\tret;\n}\n\t.file 1 \"/candidate.cu\"\n";
}

std::string Refusal(const std::string& body, const std::string& top = "", bool debug = false) {
  return InspectPtx(Module(body, top), debug).refused;
}
bool Says(const std::string& refusal, const std::string& part) {
  return refusal.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("an ordinary kernel passes and its parameters come back") {
  const PtxReport report = InspectPtx(
      Module("\tmov.u32 %r1, %tid.x;\n\tmov.u32 %one, %cluster_ctarank;\n\t@!%p1 bra $L__BB0_2;\n"
             "\t// begin inline asm\n\tcp.async.cg.shared::cta.global.L2::128B [%r1], [%rd1], 16;\n"
             "\t// end inline asm\n\twgmma.fence.sync.aligned;\n\tsetmaxnreg.inc.sync.aligned.u32 240;\n"
             "\t{ .reg .pred complete; mbarrier.try_wait.parity.shared::cta.b64 complete, [%r1], %r2; }\n"
             "\tld.global.L1::no_allocate.v4.f32 {%f1, %f2, %f3, %f4}, [%rd1+16];\n"
             "\t{ // callseq 0, 0\n\t.param .b64 param0;\n\tst.param.b64 [param0+0], %rd1;\n"
             "\tcall.uni helper, (param0);\n\t}\n"),
      false);
  CHECK(report.refused == "");
  REQUIRE(report.entries.size() == 1);
  CHECK(report.entries[0].first == "k");
  const auto& parameters = report.entries[0].second;
  REQUIRE(parameters.size() == 3);
  CHECK(parameters[0].type == "u64");
  CHECK(parameters[0].bytes == 8);
  CHECK(parameters[0].align == 8);
  CHECK(parameters[1].type == "b8");
  CHECK(parameters[1].bytes == 16);
  CHECK(parameters[1].align == 8);
  CHECK(parameters[2].type == "f32");
}

TEST_CASE("line information is understood") {
  CHECK(
      Refusal("\t.loc 1 7 5, function_name $L__info_string0, inlined_at 1 20 3\n\t.loc 2 1 1, function_name "
              "$L__info_string0+4, inlined_at 1 2 3\n\t.pragma \"nounroll\";\n",
              ".section .debug_str\n{\n$L__info_string0:\n.b8 102,111,111,0\n}\n") == "");
}

TEST_CASE("clocks and counters are refused however they are written") {
  for (const char* name :
       {"%clock", "%clock64", "%clock_hi", "%globaltimer", "%globaltimer_lo", "%globaltimer_hi"})
    CHECK(Says(Refusal(std::string("\tmov.u32 %r1, ") + name + ";\n"), std::string("reading ") + name));
  CHECK(Says(Refusal("mov.u32 %r1,%clock;"), "it is measured from outside"));
  CHECK(Says(Refusal("mov.u32/**/%r1,/* x */%clock;"), "%clock"));
  CHECK(Says(Refusal("add.u32 %r1, %r2, %clock;"), "%clock"));
  CHECK(Says(Refusal("mov.u32 %r1, %pm3;"), "%pm3"));
  CHECK(Says(Refusal("mov.u64 %rd1, %gridid;"), "it distinguishes launches"));
  CHECK(Says(Refusal("mov.u64 %rd1, %current_graph_exec;"), "it distinguishes launches"));
  CHECK(Says(Refusal("mov.b32 %r1, %envreg7;"), "%envreg7"));
  CHECK(Says(Refusal("mov.b32 %r1, %unheard_of;"), "not on the list"));
}

TEST_CASE("declaring a register of that name does not help") {
  CHECK(Says(Refusal(".reg .u32 %clock; mov.u32 %r1, %clock;"), "%clock"));
  CHECK(Says(Refusal(".reg .u32 %pm<8>; mov.u32 %r1, %pm3;"), "%pm3"));
  CHECK(Refusal(".reg .u32 %mine, %pmx; mov.u32 %mine, %pmx;") == "");
}

TEST_CASE("words in comments and strings are no code") {
  CHECK(Refusal("// mov.u32 %r1, %clock;\n/* trap;\n brkpt; */\n") == "");
  CHECK(Refusal("\t.pragma \"%clock; trap;\";\n") == "");
}

TEST_CASE("comments and strings cannot hide code") {
  CHECK(Says(Refusal("/* a */ mov.u32 %r1, %clock; /* b */"), "%clock"));
  CHECK(Says(Refusal("// end of line\rmov.u32 %r1, %clock;\n"), "%clock"));
  CHECK(Says(Refusal("// /*\nmov.u32 %r1, %clock;\n// */\n"), "%clock"));
  CHECK(Says(Refusal(".pragma \"a\"; mov.u32 %r1, %clock; .pragma \"b\";"), "%clock"));
  CHECK(Says(Refusal(".pragma \"a\\\"; mov.u32 %r1, %clock; .pragma \"b\";"), "backslash"));
  CHECK(Says(Refusal(".pragma \"a\nb\";"), "line end"));
  CHECK(Says(Refusal("#define X %clock\n"), "preprocessor"));
  CHECK(Says(Refusal("/* never ends"), "comment without an end"));
  CHECK(Says(Refusal(std::string("// a") + '\0' + "b\n"), "zero byte"));
  CHECK(Says(Refusal("mov.u32 %r1, %cl\\\nock;"), "is not PTX"));
  CHECK(Says(Refusal("// begin inline asm\n// end inline asm\nbrkpt;\n// begin inline asm\n"), "brkpt"));
}

TEST_CASE("a section holds data only") {
  CHECK(Says(Refusal("", ".section .text\n{\n.b8 1\n}\n"), "cannot be read"));
  CHECK(Says(Refusal("", ".section .debug_str\n{\nmov.u32 %r1, %clock;\n}\n"), "cannot be read"));
  CHECK(Says(Refusal("", ".section .debug_str\n{\n.b8 1\n"), "cannot be read"));
}

TEST_CASE("instructions outside the list are refused with what to do instead") {
  CHECK(Says(Refusal("trap;"), "the environment checks"));
  CHECK(Says(Refusal("@%p1 trap;"), "the environment checks"));
  CHECK(Says(Refusal("brkpt;"), "brkpt"));
  CHECK(Says(Refusal("pmevent 1;"), "pmevent"));
  CHECK(Says(Refusal("discard.global.L2 [%rd1], 128;"), "cache hint"));
  CHECK(Says(Refusal("applypriority.global.L2::evict_normal [%rd1], 128;"), "cache hint"));
  CHECK(Says(Refusal("tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f5, %f6}];"), "textures"));
  CHECK(Says(Refusal("suld.b.2d.b32.trap {%r1}, [%rd1, {%r2, %r3}];"), "surfaces"));
  CHECK(Says(Refusal("multimem.red.add.f32 [%rd1], %f1;"), "one GPU"));
  CHECK(Says(Refusal("frobnicate.b32 %r1;"), "`frobnicate.b32`"));
  CHECK(Refusal("exit;") == "");
  CHECK(Refusal("nanosleep.u32 20;") == "");
  // Cooperative groups' grid.sync() checks how it was launched.
  CHECK(Refusal("mov.u32 %r1, %envreg2; trap;") == "");
}

TEST_CASE("functions from elsewhere are refused by name; printf is allowed for debugging") {
  const std::string print = ".extern .func (.param .b32 r) vprintf (.param .b64 a, .param .b64 b)\n;\n";
  CHECK(Says(Refusal("", print), "--debug"));
  CHECK(Refusal("", print, true) == "");
  CHECK(Says(Refusal("", ".extern .func __assertfail (.param .b64 a)\n;", true), "the environment checks"));
  CHECK(Says(Refusal("", ".extern .func (.param .b64 r) malloc (.param .b64 a);"), "workspace"));
  CHECK(Says(Refusal("", ".extern .func (.param .b32 r) cudaLaunchDeviceV2 (.param .b64 a);"),
             "launch function"));
  CHECK(Says(Refusal("", ".extern .func (.param .b64 r) cudaGetParameterBufferV2 (.param .b64 a);"),
             "launch function"));
  CHECK(Says(Refusal("", ".visible .func somewhere (.param .b64 a);"), "declared but not defined"));
  CHECK(Refusal("",
                ".func (.param .b32 r) helper (.param .b64 a);\n.func (.param .b32 r) helper (.param .b64 "
                "a)\n{\nret;\n}\n") == "");
  CHECK(Says(Refusal("", ".func helper ()\n{\nmov.u32 %r1, %clock;\nret;\n}\n"), "%clock"));
}

TEST_CASE("module variables: small ones are listed, large and strange ones refused") {
  const PtxReport report =
      InspectPtx(Module("",
                        ".global .align 4 .u32 counter;\n.visible .const .align 4 .b8 "
                        "table[12] = {1, 2, 3};\n.global .align 8 .u64 pair[2][3], last = 1;\n"
                        ".global .align 1 .b8 text[] = {37, 100, 0};\n"
                        ".extern .shared .align 16 .b8 dynamic[];\n.shared .align 4 .b8 big[90000];\n"),
                 false);
  CHECK(report.refused == "");
  REQUIRE(report.globals.size() == 5);
  CHECK(report.globals[0].name == "counter");
  CHECK(report.globals[0].bytes == 4);
  CHECK(!report.globals[0].constant);
  CHECK(report.globals[1].constant);
  CHECK(report.globals[1].bytes == 12);
  CHECK(report.globals[2].bytes == 48);
  CHECK(report.globals[3].name == "last");
  CHECK(report.globals[3].bytes == 8);
  CHECK(report.globals[4].bytes == 3);
  CHECK(Refusal("", ".global .b8 a[65536];") == "");
  CHECK(Says(Refusal("", ".global .b8 a[65536]; .global .b8 b;"), "`b` goes over"));
  CHECK(Says(Refusal(".global .b8 inside[70000];"), "`inside` goes over"));
  CHECK(Says(Refusal("", ".global .v4 .f32 a[5000];"), "`a` goes over"));
  CHECK(Says(Refusal("", ".common .global .b8 a[0x10001];"), "`a` goes over"));
  CHECK(Refusal("", ".const .b8 a[65537];") == "");
  CHECK(Says(Refusal("", ".global .b8 a[256*1024];"), "not a plain number"));
  CHECK(Says(Refusal("", ".global .b8 a[4294967296][4294967296];"), "not a plain number"));
  CHECK(Says(Refusal("", ".extern .global .b8 a[4];"), "define it in the text"));
  CHECK(Says(Refusal("", ".global .attribute(.managed) .b8 a[4];"), "managed"));
  CHECK(Says(Refusal("", ".global .texref t;"), "textures"));
  CHECK(Says(Refusal("", ".global .surfref t;"), "surfaces"));
  CHECK(Says(Refusal("", ".alias f, g;"), ".alias"));
}

TEST_CASE("what cannot be read is refused") {
  CHECK(Says(InspectPtx("hello", false).refused, "`hello` is not on the list"));
  CHECK(Says(InspectPtx("mov.u32 a, b", false).refused, "ends within"));
  CHECK(Says(Refusal("%r1 mov;"), "cannot be read"));
  CHECK(Says(Refusal("mov.u32 %r1, %r2"), "cannot be read"));
  CHECK(Says(Refusal("", ".entry broken(.reg .u32 x) { ret; }"), "cannot be read"));
  CHECK(InspectPtx("", false).refused == "");
}

TEST_CASE("the assembler's report is read per kernel and taken out of the log") {
  const PtxasReport report = ReadPtxasReport(
      "ptxas info    : 0 bytes gmem\nptxas info    : Compiling entry function 'a' for 'sm_90a'\n"
      "ptxas info    : Function properties for a\n"
      "ptxas         .     16 bytes stack frame, 12 bytes spill stores, 8 bytes spill loads\n"
      "ptxas info    : Used 31 registers, used 1 barriers, 16 bytes cumulative stack size, 128 bytes smem\n"
      "ptxas info    : Function properties for helper\n"
      "ptxas         .     99 bytes stack frame, 98 bytes spill stores, 97 bytes spill loads\n"
      "ptxas info    : (C7510) Potential Performance Loss: wgmma serialized\n"
      "ptxas info    : Compiling entry function 'b' for 'sm_90a'\nptxas info    : Used 8 registers, used 0 "
      "barriers\n"
      "ptxas warning : odd\n");
  REQUIRE(report.kernels.size() == 2);
  const KernelInfo& a = report.kernels.at("a");
  CHECK(a.registers == 31);
  CHECK(a.static_shared_bytes == 128);
  CHECK(a.stack_bytes == 16);
  CHECK(a.spill_store_bytes == 12);
  CHECK(a.spill_load_bytes == 8);
  CHECK(report.kernels.at("b").registers == 8);
  CHECK(report.rest ==
        "ptxas info    : (C7510) Potential Performance Loss: wgmma serialized\nptxas warning : odd\n");
}

}  // namespace kevin
