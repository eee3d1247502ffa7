//! `spindle export`: files and devices, served over the network until somebody ends it.

use crate::{arguments::ExportArguments, console::Console, ending::Ending, refusal::Refusal};
use nbd::{Export, Exports, ServerOptions, Uri, serve, server::Event};
use serde::Serialize;
use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    rc::Rc,
};
use world::{
    Address, BlockDevice, ByteCount, IoError, IoErrorKind, Listener, Network, Sparse, World,
    real::{self, Access, FileDevice, RealOptions, Sockets, host_files, signals::interrupted},
};

/// What is served, in words for machines.
#[derive(Serialize)]
struct Served {
    uri: String,
    path: PathBuf,
    bytes: u64,
    read_only: bool,
    write_cache: bool,
}

/// Runs the verb to its end.
pub fn export(arguments: &ExportArguments) -> Result<Ending, Refusal> {
    let console = Console::new(arguments.json, arguments.quiet);
    let address = Address::parse(&arguments.nbd, nbd::PORT)
        .map_err(|error| Refusal::new(error.to_string(), "see 'spindle export --help'"))?;
    let names = names(arguments)?;
    let options = RealOptions { force_plain: arguments.plain_io };
    real::run(0, options, async |world: World| {
        // Before anything is made: what is refused leaves all as it was.
        let listener = listen(&address).await?;
        let mut devices = Vec::new();
        for path in &arguments.paths {
            devices.push(open(path, arguments).await?);
        }
        let exports = Exports::new(
            names.iter().zip(&devices).map(|(name, device)| export_of(name, device, arguments)).collect(),
        );
        tell(&listener.address(), &exports, arguments, &console)?;
        let told = console.clone();
        let serving = serve(
            world.clone(),
            listener,
            exports,
            ServerOptions::default(),
            Rc::new(move |event| say(&told, &event)),
        );
        let ended = interrupted();
        world.spawn("export", serving);
        ended.await;
        for (device, path) in devices.iter().zip(&arguments.paths) {
            device.flush().await.map_err(|error| Refusal::new(format!("{}: {error}", path.display()), ""))?;
        }
        console.say("ended; what was answered is stable");
        console.told(Ending::Pass)
    })
}

/// A name for each path: as said, or that of the file.
fn names(arguments: &ExportArguments) -> Result<Vec<String>, Refusal> {
    let (said, wanted) = (arguments.name.len(), arguments.paths.len());
    if said > 0 && said != wanted {
        let problem = format!("there are {wanted} paths and {said} names");
        return Err(Refusal::new(problem, "say --name once for each path, in their order, or not at all"));
    }
    let of_file =
        |path: &PathBuf| path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let names: Vec<String> = match said {
        0 => arguments.paths.iter().map(of_file).collect(),
        _ => arguments.name.clone(),
    };
    let mut seen = BTreeSet::new();
    match names.iter().find(|name| !seen.insert(*name)) {
        None => Ok(names),
        Some(twice) => {
            let problem = format!("two exports would be called {twice:?}");
            Err(Refusal::new(problem, "give each a name with --name"))
        }
    }
}

async fn listen(address: &Address) -> Result<Rc<dyn Listener>, Refusal> {
    match Sockets.listen(address).await {
        Ok(listener) => Ok(listener.into()),
        Err(error) => {
            let remedy = match error.kind() {
                IoErrorKind::Busy => "end who listens there, or choose another place with --nbd HOST:PORT",
                IoErrorKind::PermissionDenied => {
                    "ports below 1024 are for root; choose another one with --nbd"
                }
                _ => "choose another place with --nbd HOST:PORT or --nbd unix:PATH",
            };
            Err(Refusal::new(error.to_string(), remedy))
        }
    }
}

async fn open(path: &Path, arguments: &ExportArguments) -> Result<FileDevice, Refusal> {
    let access = if arguments.read_only { Access::Read } else { Access::ReadWrite };
    let opened = match (FileDevice::open(path, access), arguments.create) {
        (Err(error), Some(size)) if error.kind() == IoErrorKind::NotFound => create(path, size).await,
        (opened, _) => opened,
    };
    opened.map_err(|error| {
        let remedy = match error.kind() {
            IoErrorKind::NotFound => "make it with --create SIZE",
            IoErrorKind::Busy => "unmount it, or end what uses it",
            IoErrorKind::PermissionDenied | IoErrorKind::ReadOnly => {
                "serve it with --read-only, or as its owner"
            }
            IoErrorKind::WrongType => "export a file or a block device",
            _ => "",
        };
        Refusal::new(error.to_string(), remedy)
    })
}

async fn create(path: &Path, size: ByteCount) -> Result<FileDevice, IoError> {
    if !size.0.is_multiple_of(4096) || size.0 == 0 {
        let story = format!("making {}: {} bytes are not whole blocks of 4 KiB", path.display(), size.0);
        return Err(IoError::new(IoErrorKind::Unaligned, story));
    }
    let made = FileDevice::create(path, size).await;
    if made.is_err() {
        // A file that was not made whole is nobody's; its failure is told already.
        let _ = host_files::remove_file(path);
    }
    made
}

fn export_of(name: &str, device: &FileDevice, arguments: &ExportArguments) -> Export {
    let device = Rc::new(device.clone());
    Export {
        name: name.to_owned(),
        description: format!("{} of Spindle", if device.is_raw() { "a device" } else { "a file" }),
        device: Rc::clone(&device) as Rc<dyn BlockDevice>,
        sparse: Some(device as Rc<dyn Sparse>),
        is_read_only: arguments.read_only,
        has_write_cache: arguments.write_cache,
    }
}

/// Says what is served, and where.
fn tell(
    address: &Address,
    exports: &Exports,
    arguments: &ExportArguments,
    console: &Console,
) -> Result<(), Refusal> {
    let served = exports.all().iter().zip(&arguments.paths).map(|(export, path)| Served {
        uri: Uri { address: address.clone(), export: export.name.clone() }.to_string(),
        path: path.clone(),
        bytes: export.device.geometry().size.0,
        read_only: export.is_read_only,
        write_cache: export.has_write_cache,
    });
    let served: Vec<Served> = served.collect();
    if arguments.json {
        let text = serde_json::to_string(&served).expect("plain fields");
        console.json(&text).map_err(|error| Refusal::new(format!("standard output: {error}"), ""))?;
    }
    for Served { uri, path, bytes, read_only, write_cache } in &served {
        let writes = match (read_only, write_cache) {
            (true, _) => "read-only",
            (false, true) => "write cache on: stable after a flush",
            (false, false) => "write cache off: stable when answered",
        };
        console.say(&format!("{uri}  {}  {}, {writes}", path.display(), ByteCount(*bytes)));
    }
    if !address.is_local() {
        console.warn("whoever reaches this address reads and writes: NBD asks for no password here");
    }
    console.say("serving; Ctrl-C ends it");
    Ok(())
}

fn say(console: &Console, event: &Event) {
    match event {
        Event::Connected { peer, export } => console.say_progress(&format!("{peer} uses {export:?}")),
        Event::Disconnected { peer, why: None } => console.say_progress(&format!("{peer} is done")),
        Event::Disconnected { peer, why: Some(why) } => console.say_progress(&format!("{peer}: {why}")),
        Event::NotAccepted(error) => console.warn(&error.to_string()),
    }
}
