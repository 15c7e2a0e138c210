// Recurses without end.
static int Deeper(volatile int* above) {
  volatile int here[1000];
  here[0] = *above + 1;
  return Deeper(here) + here[0];
}
extern "C" void launch(const float*, float* out) {
  volatile int start = 0;
  out[0] = static_cast<float>(Deeper(&start));
}
