// Carries the precompiled header that every test uses.
int main() {
  return 0;
}
