//! How every number came about: name, formula, the numbers put in, the result.
