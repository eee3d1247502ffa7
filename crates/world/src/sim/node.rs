//! Nodes: simulated machines that crash, pause and restart apart from each other.
//!
//! A node has tasks, clocks and random streams of its own. Its drives and its network connections fail with it. The
//! `main` function of [`Simulation::run`](super::Simulation::run) stays outside of these nodes and drives the test.
//!
//! Invariants:
//!
//! 1. A crash drops all tasks of the node; nothing they left behind runs on the node or completes on its drives.
//! 2. A node's monotonic clock begins at zero with each start, so times of two nodes do not compare.

use super::{
    drive::SimDrive,
    executor::{Executor, NodeNumber, NodeSpawner, SimClock},
    network::SimNetwork,
};
use crate::{Network, Spawn, World};
use std::{cell::RefCell, future::Future, rc::Rc};

/// A simulated machine, made by [`Simulation::add_node`](super::Simulation::add_node). Cheap to clone; clones
/// share one node.
#[derive(Clone)]
pub struct SimNode(Rc<Inner>);

struct Inner {
    executor: Rc<Executor>,
    seed: u64,
    name: String,
    number: NodeNumber,
    drives: RefCell<Vec<Rc<SimDrive>>>,
    networks: RefCell<Vec<SimNetwork>>,
}

impl SimNode {
    pub(super) fn new(executor: Rc<Executor>, seed: u64, name: &str) -> Self {
        let number = executor.add_node();
        let name = name.to_owned();
        let (drives, networks) = (RefCell::default(), RefCell::default());
        Self(Rc::new(Inner { executor, seed, name, number, drives, networks }))
    }

    pub fn name(&self) -> &str {
        &self.0.name
    }

    pub fn is_up(&self) -> bool {
        self.0.executor.is_up(self.0.number)
    }

    /// Makes `drive` one of this node: it loses its host, or power, with the node.
    pub fn attach(&self, drive: &Rc<SimDrive>) {
        self.0.drives.borrow_mut().push(Rc::clone(drive));
    }

    /// The network stack of this node, as the host of its name.
    pub fn network(&self, network: &SimNetwork) -> Rc<dyn Network> {
        let mut networks = self.0.networks.borrow_mut();
        if !networks.iter().any(|known| known.is_same(network)) {
            networks.push(network.clone());
        }
        network.host(&self.0.name)
    }

    /// Starts the node, which is down, and runs `main` on it. Panics outside of
    /// [`Simulation::run`](super::Simulation::run).
    pub fn start<F: Future<Output = ()> + 'static>(&self, main: impl FnOnce(World) -> F) {
        let Inner { executor, seed, number, .. } = &*self.0;
        let start = executor.start_node(*number);
        let clock = Rc::new(SimClock { executor: Rc::clone(executor), node: *number });
        let spawner: Rc<dyn Spawn> =
            Rc::new(NodeSpawner { executor: Rc::clone(executor), node: *number, start });
        let seed = seed ^ (*number as u64 ^ (start << 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let world = World::new(clock, Rc::clone(&spawner), seed);
        spawner.spawn("main of a node", Box::pin(main(world)));
    }

    /// The operating system crashes: tasks are gone, connections are reset, drives keep their caches.
    pub fn crash(&self) {
        self.stop();
        self.0.drives.borrow().iter().for_each(|drive| drive.lose_host());
    }

    /// Power fails: like [`SimNode::crash`], and drives lose what was not stable.
    pub fn cut_power(&self) {
        self.stop();
        self.0.drives.borrow().iter().for_each(|drive| drive.cut_power());
    }

    fn stop(&self) {
        // Reset first: a dropped task would close its connections in order.
        self.0.networks.borrow().iter().for_each(|network| network.reset_host(&self.0.name));
        self.0.executor.stop_node(self.0.number);
    }

    /// Stops running tasks until [`SimNode::resume`]; clocks and I/O in flight go on.
    pub fn pause(&self) {
        self.0.executor.set_paused(self.0.number, true);
    }

    pub fn resume(&self) {
        self.0.executor.set_paused(self.0.number, false);
    }

    /// Sets the node's civil clock this many seconds ahead of the simulation's.
    pub fn set_wall_ahead(&self, seconds: i64) {
        self.0.executor.set_wall_ahead(self.0.number, seconds);
    }
}
