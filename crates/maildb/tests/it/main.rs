//! The mailbox database from outside: what goes in comes out, whatever happens between.

/// A group under test: a folder, a table, and a model of what must be in it.
mod model;

/// Mixed operations at every page size, compared with the model, checked by the verifier.
mod mixed;
