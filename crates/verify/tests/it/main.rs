//! The judges from outside: files made by the engine, and files written here by the description of the format.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, missing_docs)]
