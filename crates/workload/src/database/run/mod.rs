//! The run: groups, each on a thread, under a driver. Uses every module but [`document`](super::document) and
//! [`comparison`](super::comparison).

pub mod driver;
pub mod group;
pub mod kernel;
pub mod load_search;
pub mod progress;
pub mod trial;
