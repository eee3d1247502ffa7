//! Hostile clients: whole sessions at our servers over a simulated network, and the parts of sessions.

use iscsi::{
    scsi::{
        identity::UnitIdentity,
        properties::UnitProperties,
        reservations::Nexus,
        unit::{LogicalUnit, ScsiRequest},
    },
    target::{Target, Targets, serve as serve_iscsi},
    wire::{
        header::{IMMEDIATE, Login, PduHeader},
        pdu::{Digests, Pdu},
        text,
    },
};
use nbd::{
    DirtyBitmap, DirtyBitmaps, DirtyExtent, Export, Exports, ServerOptions, serve as serve_nbd,
    wire::handshake::{ContextRequest, InfoRequest, OptionHead, handshake_flag, option},
};
use std::{collections::BTreeMap, rc::Rc, sync::Arc, time::Duration};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use world::{
    Address, BlockDevice, Buffer, ByteCount, ByteOffset, Extent, IoResult, LocalFuture, Sparse, Stability,
    World,
    sim::{DriveOptions, NetworkOptions, SimDrive, SimLimits, SimNetwork, Simulation},
    with_deadline,
};

/// Bytes of the served drive.
const SIZE: u64 = 1 << 20;
const TARGET: &str = "iqn.x:mail";
/// Longer than any server's timeout; virtual time makes it short.
const PATIENCE: Duration = Duration::from_secs(120);

fn address() -> Address {
    Address::parse("server:1", 1).expect("an address")
}

/// A session at our iSCSI target: arbitrary bytes; or, if the first byte is odd, a valid login followed by
/// arbitrary bytes.
pub fn iscsi_session(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let bytes = if first & 1 == 1 { [login(first & 2 != 0), rest.to_vec()].concat() } else { rest.to_vec() };
    session(bytes, |world, network, drive| async move {
        let listener = network.host("server").listen(&address()).await.expect("a free address");
        let units = BTreeMap::from([(0, Rc::new(unit(&drive)))]);
        let target = Target { name: TARGET.to_owned(), units };
        let targets = Targets::new(vec![target]);
        let serving = serve_iscsi(world.clone(), listener.into(), targets, Rc::new(drop));
        world.spawn("server", serving);
    });
}

/// The bitmap `half`: of each range, the first half is dirty.
struct HalfDirty;

impl DirtyBitmaps for HalfDirty {
    fn names(&self) -> Vec<String> {
        vec!["half".to_owned()]
    }

    fn find(&self, name: &str) -> Option<Rc<dyn DirtyBitmap>> {
        (name == "half").then(|| Rc::new(Self) as Rc<dyn DirtyBitmap>)
    }
}

impl DirtyBitmap for HalfDirty {
    fn extents(&self, _: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<Vec<DirtyExtent>>> {
        let half = length.0 / 2;
        let parts = [(half, true), (length.0 - half, false)].into_iter().filter(|(length, _)| *length > 0);
        let extents = parts.map(|(length, is_dirty)| DirtyExtent { length: ByteCount(length), is_dirty });
        let extents = extents.collect();
        Box::pin(async move { Ok(extents) })
    }
}

/// A session at our NBD server: arbitrary bytes, or a valid handshake followed by arbitrary bytes.
pub fn nbd_session(data: &[u8]) {
    let Some((first, rest)) = data.split_first() else { return };
    let mut bytes = Vec::new();
    if first & 1 == 1 {
        bytes.extend(u32::from(handshake_flag::FIXED_NEWSTYLE | handshake_flag::NO_ZEROES).to_be_bytes());
        if first & 2 != 0 {
            bytes.extend(OptionHead::write(option::STRUCTURED_REPLY, &[]));
        }
        if first & 4 != 0 {
            let queries = ["base:allocation", "qemu:dirty-bitmap:half"].map(str::to_owned).into();
            let contexts = ContextRequest { name: "mail".to_owned(), queries };
            bytes.extend(OptionHead::write(option::SET_META_CONTEXT, &contexts.write()));
        }
        let wanted = InfoRequest { name: "mail".to_owned(), wanted: vec![3] };
        bytes.extend(OptionHead::write(option::GO, &wanted.write()));
    }
    bytes.extend(rest);
    session(bytes, |world, network, drive| async move {
        let listener = network.host("server").listen(&address()).await.expect("a free address");
        let export = Export {
            name: "mail".to_owned(),
            description: String::new(),
            device: drive as Rc<dyn BlockDevice>,
            sparse: None,
            bitmaps: Some(Rc::new(HalfDirty)),
            is_read_only: false,
            gate: Default::default(),
            has_write_cache: true,
        };
        let options = ServerOptions::default();
        let serving =
            serve_nbd(world.clone(), listener.into(), Exports::new(vec![export]), options, Rc::new(drop));
        world.spawn("server", serving);
    });
}

/// Sends `bytes` to the server that `start` starts, reads its replies, and checks that it serves the next
/// client.
fn session<F: Future<Output = ()> + 'static>(
    bytes: Vec<u8>,
    start: impl FnOnce(World, SimNetwork, Rc<SimDrive>) -> F + 'static,
) {
    let mut simulation = Simulation::new(1);
    let drive = simulation.add_drive(DriveOptions::new(ByteCount(SIZE)));
    let network = simulation.add_network(NetworkOptions::rack());
    let run = simulation.run(SimLimits::generous(), |world| async move {
        start(world.clone(), network.clone(), drive).await;
        let client = network.host("client");
        let stream = client.connect(&address()).await.expect("it listens");
        let (mut reader, mut writer) = tokio::io::split(stream);
        let sending = world.spawn("stranger", async move {
            // It may hang up at any time.
            let _ = writer.write_all(&bytes).await;
            let _ = writer.shutdown().await;
        });
        let mut heard = Vec::new();
        let _ = with_deadline(world.sleep(PATIENCE), reader.read_to_end(&mut heard)).await;
        drop(reader);
        let _ = with_deadline(world.sleep(PATIENCE), sending).await;
        assert!(client.connect(&address()).await.is_ok(), "it serves the next client");
    });
    run.completed();
}

fn login(has_digests: bool) -> Vec<u8> {
    let digest = if has_digests { "CRC32C" } else { "None" };
    let pairs = [
        ("InitiatorName", "iqn.x:stranger"),
        ("SessionType", "Normal"),
        ("TargetName", TARGET),
        ("AuthMethod", "None"),
        ("HeaderDigest", digest),
        ("InitialR2T", "No"),
    ];
    // From the first stage to the last but one, and on to the full feature phase.
    let request = |flags, pairs: &[(&str, &str)]| {
        let login = Login { first: IMMEDIATE, flags, isid: [0x80, 0, 0, 0, 0, 1], ..Login::empty() };
        Pdu::new(login.to_bytes(), text::write(pairs.iter().copied())).encode(Digests::default())
    };
    [request(0x81, &pairs[..4]), request(0x87, &pairs[4..])].concat()
}

fn unit(drive: &Rc<SimDrive>) -> LogicalUnit {
    let properties = UnitProperties {
        product: "VOLUME".to_owned(),
        revision: "0001".to_owned(),
        identity: UnitIdentity(*b"a unit of a fuzz"),
        block_bytes: 512,
        physical_bytes: 4096,
        is_read_only: false,
        is_thin: true,
        is_removable: false,
        port: 1,
    };
    let sparse: Rc<dyn Sparse> = Rc::new(Zeroing(Rc::clone(drive)));
    LogicalUnit::new(properties, Rc::clone(drive) as Rc<dyn BlockDevice>, Some(sparse), true)
}

/// A drive that supports writing zeroes.
struct Zeroing(Rc<SimDrive>);

impl Sparse for Zeroing {
    fn write_zeroes(
        &self,
        at: ByteOffset,
        length: ByteCount,
        _keeps_space: bool,
        stability: Stability,
    ) -> LocalFuture<IoResult<()>> {
        self.0.write(at, vec![Arc::new(Buffer::zeroed(length.0 as usize))], stability)
    }

    fn extents(&self, _at: ByteOffset, length: ByteCount) -> LocalFuture<IoResult<Vec<Extent>>> {
        Box::pin(async move { Ok(vec![Extent { length, is_hole: false, is_zero: false }]) })
    }
}

/// Commands of two initiators: each is a byte for the initiator and the data length, the command, and the
/// data.
pub fn iscsi_commands(data: &[u8]) {
    let data = data.to_vec();
    let mut simulation = Simulation::new(1);
    let drive = simulation.add_drive(DriveOptions::new(ByteCount(SIZE)));
    let unit = unit(&drive);
    let run = simulation.run(SimLimits::generous(), |_| async move {
        let who = ["a", "b"].map(|name| Nexus(format!("iqn.x:{name},i,0x800000000001")));
        who.iter().for_each(|nexus| unit.begin_session(nexus));
        let mut rest = &data[..];
        while let Some((cdb, behind)) = rest.get(1..).and_then(|behind| behind.split_at_checked(16)) {
            let length = [0, 8, 24, 512, 1024, 4096, 36, 1][usize::from(rest[0] >> 1 & 7)];
            let (list, behind) = behind.split_at(behind.len().min(length));
            let buffers = if list.is_empty() { Vec::new() } else { vec![Buffer::copy_of(list)] };
            let nexus = &who[usize::from(rest[0] & 1)];
            let asked = ScsiRequest {
                nexus,
                target: TARGET,
                cdb,
                data: buffers,
                units: &[0, 1],
                reach: &[],
                may_write: true,
                is_mismatched: rest[0] & 0x10 != 0,
            };
            unit.execute(asked).await;
            rest = behind;
        }
    });
    run.completed();
}

/// Keys and values: text that parses must be written as it was read.
pub fn iscsi_text(data: &[u8]) {
    if let Some(pairs) = text::read(data) {
        let written = text::write(pairs.iter().map(|(key, value)| (key, value)));
        assert_eq!(text::read(&written), Some(pairs));
    }
}

/// The initial corpus of each target.
pub fn seeds() -> Vec<(&'static str, &'static str, Vec<u8>)> {
    let read_16 = [
        vec![0x01, 0xc0],
        vec![0; 14],
        vec![0, 0, 0, 1, 0, 0, 2, 0],
        vec![0; 8],
        vec![0x88],
        vec![0; 12],
        vec![1, 0, 0],
    ];
    let read_nbd = [vec![0x25, 0x60, 0x95, 0x13], vec![0; 4], vec![7; 8], vec![0; 8], vec![0, 0, 2, 0]];
    let status_nbd =
        [vec![0x25, 0x60, 0x95, 0x13], vec![0, 0, 0, 7], vec![7; 8], vec![0; 8], vec![0, 0, 64, 0]];
    let command = |first: u8, code: u8, data: usize| [vec![first, code], vec![0; 15], vec![0; data]].concat();
    vec![
        ("iscsi_session", "login", [vec![0], login(true)].concat()),
        ("iscsi_session", "read", [vec![1], read_16.concat()].concat()),
        ("nbd_session", "read", [vec![1], read_nbd.concat()].concat()),
        ("nbd_session", "block_status", [vec![7], status_nbd.concat()].concat()),
        ("iscsi_text", "pairs", text::write([("InitiatorName", "iqn.x:a"), ("AuthMethod", "CHAP,None")])),
        ("iscsi_commands", "inquiry", command(0, 0x12, 0)),
        ("iscsi_commands", "reserve", [command(5, 0x5f, 24), command(0, 0x5e, 0)].concat()),
        ("iscsi_commands", "write", [command(6, 0x8a, 512), command(1, 0x88, 0)].concat()),
        ("iscsi_commands", "unmap", command(4, 0x42, 24)),
    ]
}
