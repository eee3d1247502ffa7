//! How fast a database is verified: every page read and its checksums checked, as `spindle prove` does it at the
//! end of a run.
//!
//! `verify_pages FOLDER DATABASE PASSES` prints one line of JSON: bytes, seconds, processor seconds.

use std::{env, error::Error, path::Path, process::ExitCode};
use verify::in_world::verify_database;
use world::{
    Directory, World,
    real::{FolderDirectory, RealOptions, host::process_use, run},
};

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [folder, database, passes] = &arguments[..] else {
        eprintln!("usage: verify_pages FOLDER DATABASE PASSES");
        return ExitCode::from(2);
    };
    let Ok(passes) = passes.parse() else {
        eprintln!("PASSES is a number");
        return ExitCode::from(2);
    };
    let measured =
        run(1, RealOptions::default(), async |world| measure(&world, folder, database, passes).await);
    match measured {
        Ok(line) => {
            println!("{line}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

async fn measure(world: &World, folder: &str, name: &str, passes: u32) -> Result<String, Box<dyn Error>> {
    let directory = FolderDirectory::open(Path::new(folder))?;
    let (start, used) = (world.now(), process_use());
    let mut bytes = 0;
    for _ in 0..passes {
        let verdict = verify_database(directory.open(name).await?, name, &mut |_, _| {}).await?;
        if let Some(damage) = verdict.damaged.first() {
            return Err(format!("page {} of {name}: {}", damage.page.0, damage.problem).into());
        }
        bytes += verdict.bytes.0;
    }
    let seconds = world.now().since(start).as_secs_f64();
    let cpu_seconds = process_use().cpu().saturating_sub(used.cpu()).as_secs_f64();
    Ok(format!("{{\"bytes\": {bytes}, \"seconds\": {seconds}, \"cpu_seconds\": {cpu_seconds}}}"))
}
