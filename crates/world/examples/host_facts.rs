//! `host_facts PATH` prints the facts Spindle reads about this machine and the storage at PATH. With a second
//! argument it then waits for Ctrl-C.

use std::{env, path::PathBuf, process::ExitCode, time::Duration};
use world::real::{
    AccessMode, Engine, FileDevice, FolderDirectory, RealOptions,
    host::{self, machine, process_use},
    host_files::{self, PathKind},
    run,
    signals::interrupted,
};

fn main() -> ExitCode {
    let Some(path) = env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: host_facts PATH [wait]");
        return ExitCode::from(2);
    };
    run(1, RealOptions::default(), async |world| {
        println!("{:#?}", machine());
        println!("io_uring not in use because: {:?}", Engine::current().fallback_reason());
        let drive = match host_files::kind(&path) {
            Ok(PathKind::BlockDevice) => {
                println!("in use: {:?}", host::usage_of_device(&path));
                match FileDevice::open(&path, AccessMode::Read) {
                    Ok(device) => println!("holds {:?}", host::signature_of(&device).await),
                    Err(error) => println!("{error:?}"),
                }
                host::drive_of_device(&path).ok()
            }
            kind => {
                println!("{kind:?}");
                println!("{:#?}", host::filesystem_of(&path));
                println!("{:?}", FolderDirectory::open(&path).map(|folder| folder.io_kind()));
                host::drive_of_path(&path)
            }
        };
        println!("{drive:#?}");
        if let Some(drive) = drive {
            println!("{:?}", host::drive_activity(&world, &drive.name, Duration::from_millis(200)).await);
        }
        println!("{:?}", process_use());
        if env::args_os().len() > 2 {
            println!("{:?}", interrupted().await);
            world.sleep(Duration::from_secs(3600)).await;
        }
        ExitCode::SUCCESS
    })
}
