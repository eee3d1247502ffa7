//! The derivation of every number: formula, inputs, result, source.
//!
//! Invariants:
//!
//! 1. A number is computed from the text of its formula, by [`Formula`]: what `--explain` shows is what was computed.
//! 2. A formula names only figures and numbers that were there before it.
//! 3. A number is finite; what rests on a weak figure is no stronger itself.

mod formula;
mod sheet;

pub use formula::Formula;
pub use sheet::{Derived, Input, Sheet, Step};
