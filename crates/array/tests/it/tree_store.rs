//! A node store in memory with full bookkeeping: places, releases, and counts of requests.
//!
//! Its futures take a few polls, so that concurrent ones interleave. It does not validate the nodes it
//! returns.

use array::{
    error::{Error, Result},
    format::{NodePointer, PoolId, SegmentBlock, SegmentNumber, TreeKind},
    tree::{NodeStore, TreeCounts, Trees},
};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, BTreeSet},
    future::{Future, poll_fn},
    pin::pin,
    rc::Rc,
    task::{Context, Poll, Waker},
};
use world::{LocalFuture, Random};

pub const POOL: PoolId = PoolId([7; 16]);
/// Blocks of a segment: few, so that trees lie in several.
const SEGMENT_BLOCKS: u32 = 200;

type NodePlace = (SegmentNumber, SegmentBlock);

/// Operation to fail, with a countdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    Read,
    Place,
    Write,
}

pub struct MemoryStore {
    pub nodes: RefCell<BTreeMap<NodePlace, Vec<u8>>>,
    next: Cell<u32>,
    /// Places reserved and not released.
    pub live: RefCell<BTreeSet<NodePlace>>,
    placed: RefCell<BTreeSet<NodePlace>>,
    pub reads: Cell<u64>,
    pub writes: Cell<u64>,
    pub failing: Cell<Option<(Failure, u64)>>,
    /// Most writes, and most reads, in progress at a time.
    reading: Cell<u64>,
    pub reading_max: Cell<u64>,
    pub longest_write: Cell<usize>,
    patience: RefCell<Random>,
}

impl MemoryStore {
    pub fn new(seed: u64) -> Rc<Self> {
        Rc::new(Self {
            nodes: RefCell::default(),
            next: Cell::new(0),
            live: RefCell::default(),
            placed: RefCell::default(),
            reads: Cell::new(0),
            writes: Cell::new(0),
            failing: Cell::new(None),
            reading: Cell::new(0),
            reading_max: Cell::new(0),
            longest_write: Cell::new(0),
            patience: RefCell::new(Random::new(seed, "patience")),
        })
    }

    fn fails(&self, what: Failure) -> bool {
        let Some((failing, left)) = self.failing.get().filter(|(failing, _)| *failing == what) else {
            return false;
        };
        self.failing.set(Some((failing, left.saturating_sub(1))));
        left == 0
    }

    fn error() -> Error {
        Error::Stopped("a failure that was asked for".into())
    }

    fn polls(&self) -> u64 {
        self.patience.borrow_mut().below(4)
    }
}

/// A handle, so that futures can hold the store.
pub struct Shared(pub Rc<MemoryStore>);

impl NodeStore for Shared {
    fn read(&self, pointer: NodePointer) -> LocalFuture<Result<Rc<[u8]>>> {
        let store = self.0.clone();
        Box::pin(async move {
            store.reads.set(store.reads.get() + 1);
            store.reading.set(store.reading.get() + 1);
            store.reading_max.set(store.reading_max.get().max(store.reading.get()));
            wait(store.polls()).await;
            store.reading.set(store.reading.get() - 1);
            if store.fails(Failure::Read) {
                return Err(MemoryStore::error());
            }
            let nodes = store.nodes.borrow();
            let bytes = nodes.get(&(pointer.segment, pointer.block)).cloned();
            let bytes = bytes.expect("nothing is read that was never written");
            Ok(bytes.into())
        })
    }

    fn place(&self, _tree: TreeKind, blocks: u8) -> Result<NodePlace> {
        if self.0.fails(Failure::Place) {
            return Err(Error::Full);
        }
        let block = self.0.next.get();
        self.0.next.set(block + u32::from(blocks));
        let place = (SegmentNumber(block / SEGMENT_BLOCKS), SegmentBlock(block % SEGMENT_BLOCKS));
        assert!(self.0.placed.borrow_mut().insert(place));
        self.0.live.borrow_mut().insert(place);
        Ok(place)
    }

    fn write(&self, at: NodePlace, nodes: Vec<Vec<u8>>) -> LocalFuture<Result<()>> {
        let store = self.0.clone();
        Box::pin(async move {
            store.writes.set(store.writes.get() + 1);
            store.longest_write.set(store.longest_write.get().max(nodes.len()));
            wait(store.polls()).await;
            if store.fails(Failure::Write) {
                return Err(MemoryStore::error());
            }
            for (index, node) in nodes.into_iter().enumerate() {
                let place = (at.0, SegmentBlock(at.1.0 + index as u32));
                assert!(place.1.0 < SEGMENT_BLOCKS, "a write stays in its segment");
                assert!(store.live.borrow().contains(&place), "{place:?} was placed, and not given back");
                assert!(
                    store.nodes.borrow_mut().insert(place, node).is_none(),
                    "nodes are never touched again"
                );
            }
            Ok(())
        })
    }

    fn release(&self, pointer: NodePointer) {
        let there = self.0.live.borrow_mut().remove(&(pointer.segment, pointer.block));
        assert!(there, "{pointer:?} is released once");
    }
}

pub fn trees(store: &Rc<MemoryStore>, cache_bytes: usize) -> Trees {
    Trees::new(Rc::new(Shared(store.clone())), POOL, cache_bytes)
}

/// Checks whole trees: their nodes are exactly the places reserved and not released.
pub fn check(store: &MemoryStore, trees: &Trees, roots: &[(TreeKind, Option<NodePointer>)]) -> TreeCounts {
    let mut reached = BTreeSet::new();
    let mut last = TreeCounts::default();
    for &(tree, root) in roots {
        last = run(trees.check(tree, root, |pointer| {
            assert!(reached.insert((pointer.segment, pointer.block)), "no node is in two places");
        }))
        .expect("the tree is sound");
    }
    assert_eq!(reached, *store.live.borrow(), "reached, and placed without having been released");
    last
}

/// Runs a future that depends on no other task.
pub fn run<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    for _ in 0..10_000_000 {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return output;
        }
    }
    panic!("the future does not end");
}

/// The result of a future that never awaits.
pub fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(output) => Some(output),
        Poll::Pending => None,
    }
}

async fn wait(mut polls: u64) {
    poll_fn(|context| {
        if polls == 0 {
            return Poll::Ready(());
        }
        polls -= 1;
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
