//! A server with a drive, a network, and clients.

use nbd::{Client, ClientOptions, Export, Exports, NbdUri, ServerOptions, TlsMode, UriTls, serve};
use std::rc::Rc;
use tls::ClientTls;
use world::{
    Address, BlockDevice, Buffer, ByteCount, ByteOffset, World,
    sim::{DriveOptions, NetworkOptions, SimDrive, SimNetwork, Simulation},
};

/// Size of the drive.
pub const SIZE: u64 = 1 << 20;

pub struct Scene {
    pub simulation: Simulation,
    pub drive: Rc<SimDrive>,
    pub network: SimNetwork,
}

impl Scene {
    pub fn new(seed: u64, network: NetworkOptions) -> Self {
        let mut simulation = Simulation::new(seed);
        let drive = simulation.add_drive(DriveOptions::new(ByteCount(SIZE)));
        let network = simulation.add_network(network);
        Self { simulation, drive, network }
    }
}

pub fn export(name: &str, drive: &Rc<SimDrive>) -> Export {
    Export {
        name: name.to_owned(),
        description: "a simulated drive".to_owned(),
        device: Rc::clone(drive) as Rc<dyn BlockDevice>,
        sparse: None,
        bitmaps: None,
        is_read_only: false,
        gate: Default::default(),
        has_write_cache: true,
    }
}

pub fn uri(name: &str) -> NbdUri {
    NbdUri {
        address: Address::parse("server:10809", 0).unwrap(),
        others: Vec::new(),
        export: name.to_owned(),
        tls: None,
    }
}

/// Serves `exports` on host `server` until the world ends.
pub async fn start(world: &World, network: &SimNetwork, exports: Vec<Export>) {
    start_with(world, network, exports, TlsMode::Off).await;
}

pub async fn start_with(world: &World, network: &SimNetwork, exports: Vec<Export>, tls: TlsMode) {
    let listener = network.host("server").listen(&uri("").address).await.unwrap();
    let options = ServerOptions { tls, ..ServerOptions::default() };
    let serving = serve(world.clone(), listener.into(), Exports::new(exports), options, Rc::new(drop));
    world.spawn("server", serving);
}

pub async fn connect(world: &World, network: &SimNetwork, name: &str) -> world::IoResult<Client> {
    Client::connect(world, network.host("client"), uri(name), ClientOptions::default()).await
}

/// Connects over TLS.
pub async fn connect_with(
    world: &World,
    network: &SimNetwork,
    name: &str,
    tls: ClientTls,
) -> world::IoResult<Client> {
    let uri = NbdUri { tls: Some(UriTls::default()), ..uri(name) };
    let options = ClientOptions { tls: Some(tls), ..ClientOptions::default() };
    Client::connect(world, network.host("client"), uri, options).await
}

pub async fn read(device: &dyn BlockDevice, at: u64, length: usize) -> world::IoResult<Vec<u8>> {
    let read = device.read(ByteOffset(at), vec![Buffer::zeroed(length)]).await?;
    Ok(read[0].to_vec())
}
