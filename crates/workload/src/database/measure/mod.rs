//! Measurement of the database load: samples, pools below the files, verification. Uses [`load`](super::load).

pub mod pools;
pub mod recovery;
pub mod sample;
pub mod verify;
