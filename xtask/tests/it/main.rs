//! Tidy: the rules of the house that no compiler keeps, as tests.
//!
//! Each module reads the tree through [`tree`], and finds what breaks its rule with a pure function
//! that is itself tried on a bad example. A failure lists every finding, not the first.

// Tests read the tree and start cargo; the product may do neither.
#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod bans;
mod documents;
mod edges;
mod forgotten_files;
mod kinds_of_files;
mod licences;
mod readme;
mod rust_text;
mod seeds;
mod settings;
mod source_rules;
mod tree;
mod words;
