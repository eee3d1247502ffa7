//! Two sites in a simulated network: one connects from host `a`, the other listens at hosts `b0`, `b1`, …

use array::format::{BLOCK_BYTES, BlockIndex, GroupId, SiteId, VolumeId};
use replication::{
    frame::{AttachFrame, FrameBody, PassBlock, PassBlocksFrame, PassEndFrame},
    link::{LinkError, LinkListener, LinkPeer, LinkSecurity, LinkSession, LinkSettings, RejectedConnection},
};
use std::{cell::RefCell, rc::Rc, sync::Arc, time::Duration};
use world::{
    Address, Buffer, Network, Random, World,
    sim::{NetworkOptions, SimLimits, SimNetwork, SimOutcome, Simulation},
};

pub const SITE_A: SiteId = SiteId([0xa; 16]);
pub const SITE_B: SiteId = SiteId([0xb; 16]);

/// Runs `main` in a simulated network; it must end.
pub fn run<T: 'static, F: Future<Output = T> + 'static>(seed: u64, main: impl FnOnce(Scene) -> F) -> T {
    let mut simulation = Simulation::new(seed);
    let options = NetworkOptions { latency: Duration::from_millis(2), ..NetworkOptions::rack() };
    let network = simulation.add_network(options);
    let limits = SimLimits { span: Duration::from_secs(4 * 3600), ..SimLimits::generous() };
    match simulation.run(limits, |world| main(Scene { world, network, rejected: Rc::default() })) {
        SimOutcome::Completed(value) => value,
        other => panic!("seed {seed}: {:?}", other_name(&other)),
    }
}

fn other_name<T>(outcome: &SimOutcome<T>) -> String {
    match outcome {
        SimOutcome::Completed(_) => "completed".to_owned(),
        SimOutcome::Crashed => "crashed".to_owned(),
        SimOutcome::TimedOut => "timed out".to_owned(),
        SimOutcome::Deadlocked(tasks) => format!("deadlocked: {tasks:?}"),
        SimOutcome::Livelocked(tasks) => format!("livelocked: {tasks:?}"),
    }
}

#[derive(Clone)]
pub struct Scene {
    pub world: World,
    pub network: SimNetwork,
    pub rejected: Rc<RefCell<Vec<RejectedConnection>>>,
}

pub fn address(path: usize) -> Address {
    Address::Tcp { host: format!("b{path}"), port: 7000 }
}

pub fn options(site: SiteId) -> LinkSettings {
    LinkSettings::new(site, "test 1.0", LinkSecurity::Plain)
}

pub fn peer(paths: usize) -> LinkPeer {
    LinkPeer { addresses: (0..paths).map(address).collect(), site: Some(SITE_B) }
}

impl Scene {
    /// Listens at all paths of site B.
    pub async fn listen(&self, paths: usize, options: LinkSettings) -> Rc<LinkListener> {
        let rejected = Rc::clone(&self.rejected);
        let tell = Rc::new(move |connection| rejected.borrow_mut().push(connection));
        let listener = LinkListener::new(&self.world, options, Rc::new(|_| ()), tell);
        for path in 0..paths {
            let at = self.network.host(&format!("b{path}")).listen(&address(path)).await.unwrap();
            self.world.spawn("listener", Rc::clone(&listener).serve(at.into()));
        }
        listener
    }

    pub fn client(&self) -> Rc<dyn Network> {
        self.network.host("a")
    }

    pub async fn connect(&self, paths: usize, options: LinkSettings) -> Result<LinkSession, LinkError> {
        LinkSession::connect(&self.world, self.client(), peer(paths), options).await
    }

    /// Both ends of a session: that of site A, then that of B.
    pub async fn session(&self, paths: usize) -> (LinkSession, LinkSession, Rc<LinkListener>) {
        let listener = self.listen(paths, options(SITE_B)).await;
        let ours = self.connect(paths, options(SITE_A)).await.expect("it connects");
        let theirs = listener.next_session().await;
        (ours, theirs, listener)
    }

    pub async fn sleep_ms(&self, ms: u64) {
        self.world.sleep(Duration::from_millis(ms)).await;
    }
}

pub fn attach(group: u8) -> AttachFrame {
    AttachFrame { group: GroupId([group; 16]), part: Some(0) }
}

/// A small ordered frame with a number.
pub fn small(number: u64) -> FrameBody {
    FrameBody::PassEnd(PassEndFrame { number, blocks: 0, digest: 0 })
}

/// An ordered frame with a number and some blocks, which cannot be packed.
pub fn bulk(number: u64, blocks: u64) -> FrameBody {
    thread_local! {
        static DATA: Vec<Arc<Buffer>> = (0..256).map(noise).collect();
    }
    let data = |index: u64| DATA.with(|data| Arc::clone(&data[index as usize]));
    bulk_of(number, blocks, data)
}

/// An ordered frame with a number and some blocks of zeros.
pub fn bulk_zeros(number: u64, blocks: u64) -> FrameBody {
    let data = Arc::new(Buffer::zeroed(BLOCK_BYTES));
    bulk_of(number, blocks, |_| Arc::clone(&data))
}

/// Bytes without a pattern.
fn noise(seed: u64) -> Arc<Buffer> {
    let mut random = Random::new(seed, "noise");
    let bytes: Vec<u8> = (0..BLOCK_BYTES).map(|_| random.below(256) as u8).collect();
    Arc::new(Buffer::copy_of(&bytes))
}

fn bulk_of(number: u64, blocks: u64, data: impl Fn(u64) -> Arc<Buffer>) -> FrameBody {
    let block = |index| PassBlock { block: BlockIndex((number << 16) + index), data: data(index) };
    let blocks = (0..blocks).map(block).collect();
    FrameBody::PassBlocks(PassBlocksFrame { volume: VolumeId([1; 16]), blocks })
}

/// The number of such a frame; the largest one for any other frame, which was never sent.
pub fn number_of(body: &FrameBody) -> u64 {
    match body {
        FrameBody::PassEnd(end) => end.number,
        FrameBody::PassBlocks(blocks) => blocks.blocks[0].block.0 >> 16,
        _ => u64::MAX,
    }
}
