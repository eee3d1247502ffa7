//! `spindle volume import`: a device elsewhere becomes a volume, which can be used while its blocks are copied.

use super::{
    copying::progress_of,
    online_pool::OnlinePool,
    online_wait::OnlineWait,
    pool_place::PoolPlace,
    reporter::{close_all, open_all},
    volume_access::VerbOptions,
};
use crate::{console::Console, exit_status::ExitStatus, remote_arguments::RemoteArguments};
use array::{format::VolumeId, pool::ImportTerms};
use clap::Args;
use control::{
    job_request::JobAnswer,
    web::{
        client::{ImportBody, Method},
        health_rows::JobRow,
    },
};
use report::Refusal;
use serde::Serialize;
use serving::{
    pool::{
        copying::shown,
        folder::{OpenPool, VolumePath},
        volume_import::{self, ImportOrigin, VolumeImportAnswer},
    },
    remote::is_uri,
    uuid::random_uuid,
};
use std::path::{Path, PathBuf};
use world::{
    Job, World,
    real::{self, RealOptions, host_files},
};

/// Arguments of the verb.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle volume import mail/store --from iscsi://old-array/iqn.2010-01.example:array/0
  spindle volume import mail/store --from nbd://10.0.0.9/store
  spindle volume import mail/store --from /dev/sdk
  spindle volume import mail/store --from store.img --skip-bad
  spindle volume import mail/store --from nbd://10.0.0.9/store --read-once

Hosts log out of the old array, log in to this one, and go on working: what is not copied yet is read from the source, \
and what they write goes to the volume. Nobody may write the source from then on. Each block that no host has written \
is copied, then compared with the source; then the volume needs it no more. With --read-once what was copied is read back \
in the pool and must have the checksums that it was copied with, and the source is read again where nothing was copied \
alone: half the time where the source is the slower side, but what somebody wrote there meanwhile, or what it read wrong \
once, is not noticed. While it is imported, the volume has no \
snapshots, clones or copies, keeps its size and is in no group. If the source is away, hosts wait for it where they read \
what is not copied, and the import goes on when it is back. It goes on over restarts, and the same command goes on with \
one that was interrupted. Blocks that the source cannot read keep it from its end, until they can be read, a host has \
written them, or --skip-bad is said. While a server has the pool, it is the job import of the pool, one at a time, and \
paths are those of the server's machine. --json prints {\"path\", \"done\", \"size_bytes\", \"copied_bytes\", \
\"compared_bytes\", \"read_back_bytes\", \"host_bytes\", \"bad_bytes\", \"bad\", \"changed_bytes\", \"changed\"}.")]
pub struct VolumeImportArguments {
    /// Pool and name of the new volume
    #[arg(value_name = "POOL/VOLUME")]
    pub volume: PathBuf,

    /// URI of the source (iscsi://, nbd://), or path of a file or device
    #[arg(long, value_name = "SOURCE")]
    pub from: PathBuf,

    /// End it although blocks cannot be read, which are zeroes then, or changed in the source, which stay as copied
    #[arg(long)]
    pub skip_bad: bool,

    /// Read the source once: what was copied is read back in the pool, and not compared with the source
    #[arg(long)]
    pub read_once: bool,

    #[command(flatten)]
    pub remote: RemoteArguments,
}

/// The answer as JSON.
#[derive(Serialize)]
struct ImportedAnswer<'a> {
    path: &'a Path,
    done: &'static str,
    #[serde(flatten)]
    answer: &'a VolumeImportAnswer,
}

/// Imports a device into a new volume, or goes on with that.
pub fn import(
    options: VerbOptions<'_>,
    (path, wanted): (&Path, &VolumePath),
    import: &VolumeImportArguments,
) -> Result<ExitStatus, Refusal> {
    real::run(0, RealOptions::default(), async |world: World| {
        let console = Console::new(options.json, false);
        let answer = match PoolPlace::of(&world, &wanted.folder, options.server).await? {
            PoolPlace::Served(pool) => {
                Box::pin(import_served((&world, &console), &pool, (wanted, import))).await?
            }
            PoolPlace::Folder => {
                let opened = open_all(&world, &[&wanted.folder], &console).await?;
                let done = Box::pin(import_here((&world, &console), &opened[0], (wanted, import))).await;
                let closed = close_all(opened).await;
                let done = done?;
                closed?;
                done
            }
        };
        if console.is_for_programs() {
            console.json_of(&ImportedAnswer { path, done: "imported", answer: &answer })?;
        }
        console.say(&answer.text(path));
        console.finish(ExitStatus::Pass)
    })
}

/// As a job of the server that has the pool.
async fn import_served(
    (world, console): (&World, &Console),
    pool: &OnlinePool,
    (wanted, import): (&VolumePath, &VolumeImportArguments),
) -> Result<VolumeImportAnswer, Refusal> {
    let text = |path: &Option<PathBuf>| path.as_deref().map(|path| absolute(pool, path)).transpose();
    let settings = import.remote.settings();
    let body = ImportBody {
        name: wanted.volume.clone(),
        from: if is_uri(&import.from) {
            import.from.display().to_string()
        } else {
            absolute(pool, &import.from)?
        },
        chap_name: settings.chap_name.clone(),
        chap_secret_file: text(&settings.chap_secret_file)?,
        chap_target_name: settings.chap_target_name.clone(),
        chap_target_secret_file: text(&settings.chap_target_secret_file)?,
        digests: settings.digests,
        skip_bad: import.skip_bad,
        read_once: import.read_once,
    };
    let row: JobRow = pool.send(Method::POST, &pool.path("/imports"), Some(&body)).await?.parsed()?;
    let (job, word) = (row.kind, pool.job_word(row.kind));
    let cancel = format!(
        "'spindle job cancel {word}{}' stops it: the volume stays, and needs its source",
        pool.repeated()
    );
    let work = "the import".to_owned();
    let wait = OnlineWait { world, pool, console, job, work, cancel: Some(cancel), again: None };
    let id = row.request.map(|request| request.id).unwrap_or_default();
    match wait.until_job_ends(&id).await?.answer {
        Some(JobAnswer::Import(answer)) => Ok(answer),
        _ => Err(Refusal::new(
            "the server's answer cannot be read",
            "use the same version of Spindle for both",
        )),
    }
}

/// A path as a server on this machine sees it.
fn absolute(pool: &OnlinePool, path: &Path) -> Result<String, Refusal> {
    if !pool.is_here() {
        // It is one of the server's machine.
        return Ok(path.display().to_string());
    }
    let found = host_files::canonical(path).map_err(|error| {
        Refusal::new(
            error.to_string(),
            "name an iscsi:// or nbd:// URI, or a file or device that can be read",
        )
    })?;
    Ok(found.display().to_string())
}

/// In a pool that this command has open.
async fn import_here(
    (world, console): (&World, &Console),
    open: &OpenPool,
    (wanted, import): (&VolumePath, &VolumeImportArguments),
) -> Result<VolumeImportAnswer, Refusal> {
    let source = ImportOrigin::of(&import.from, &import.remote.settings())?;
    let named = open.pool.volumes().into_iter().find(|info| info.name == wanted.volume);
    let known = named.as_ref().and_then(|info| info.importing.as_ref());
    let known = known.and_then(|status| ImportOrigin::decode(&status.source));
    let volume = match (&named, known) {
        (Some(info), Some(known)) if known.from == source.from => info.volume,
        (Some(_), Some(known)) => {
            let shown = wanted.folder.join(&wanted.volume);
            let problem = format!("{} is being imported from {}", shown.display(), known.from.display());
            return Err(Refusal::new(problem, "name that source to go on, or choose another name"));
        }
        // A name that is taken is refused there.
        _ => {
            let volume = VolumeId(random_uuid(world));
            volume_import::begin(world, &open.pool, (&wanted.volume, volume), &source).await?;
            volume
        }
    };
    let terms = ImportTerms { keeps_findings: import.skip_bad, reads_once: import.read_once };
    let job = Job::under_way(world);
    let mut show = progress_of("import", world, console);
    let run = volume_import::run(&open.pool, volume, terms, &job);
    let imported = shown(world, &job, &mut show, run).await;
    imported.map_err(|error| open.refusal(&error, volume_import::remedy(&error)))
}
