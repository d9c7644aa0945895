// Carries the precompiled headers of the libraries.
