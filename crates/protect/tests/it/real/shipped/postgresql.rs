//! postgresql
