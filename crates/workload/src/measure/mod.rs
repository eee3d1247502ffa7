//! Measurement: what samples, loads and threads say, independent of the kind of load.

pub mod processor;
pub mod steady_state;
pub mod windows;
