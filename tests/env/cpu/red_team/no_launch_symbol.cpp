// Declares launch and defines it nowhere.
extern "C" void launch(const float*, float*);
