//! The mailbox database in the simulated world: a thousand seeds, ten thousand under `SPINDLE_FULL`.

#![allow(clippy::disallowed_methods, clippy::disallowed_types, missing_docs)]
