//! prove
pub mod manifest;
pub mod place;
pub mod sizing;
