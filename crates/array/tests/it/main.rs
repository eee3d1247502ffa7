//! What lies on drives: images that never change, values that come back, bytes that lie.

#![allow(clippy::disallowed_methods, clippy::disallowed_types)]

mod adding;
mod before_pivots;
mod bounds;
mod election;
mod events;
mod examples;
mod golden;
mod head_tree;
mod history_tree;
mod hostile;
mod image;
mod killed;
mod lineage;
mod log;
mod many;
mod map;
mod nodes;
mod pacing;
mod pool;
mod raid0;
mod rebuild;
mod room;
mod round_trip;
mod salvage;
mod scene;
mod shares;
mod stuck;
mod superblocks;
mod three_copies;
mod tree_faults;
mod tree_shape;
mod tree_store;
mod upkeep;
mod values;
