//! prove
pub mod clean;
pub mod ground;
pub mod layout;
pub mod manifest;
pub mod outputs;
pub mod place;
pub mod progress;
pub mod screen;
pub mod sizing;
