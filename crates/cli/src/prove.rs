//! prove
pub mod manifest;
pub mod place;
pub mod sizing;
pub mod progress;
pub mod screen;
