//! What can be bought: arrays, drives, cloud volumes.
