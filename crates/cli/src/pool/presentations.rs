//! `spindle volume present`, `presentations` and `withdraw`: a point of a volume for one host, for a bounded time.

use super::{
    confirmation::Destruction, online_pool::OnlinePool, pool_place::PoolPlace, volume_access::VerbOptions,
};
use crate::{
    command_line::quoted, console::Console, exit_status::ExitStatus, quantity::parse_duration,
    server::place::ServerAddress,
};
use clap::Args;
use control::web::client::{
    Method, NewPresentationBody, PresentationEndRow, PresentationList, PresentationRow, PresentationState,
    in_uri,
};
use report::Refusal;
use serving::pool::{folder::VolumePath, volume_change::SnapshotRef};
use std::{
    path::{Path, PathBuf},
    time::Duration,
};
use world::{
    World,
    real::{self, RealOptions},
};

/// Names of the server's targets begin with it.
const AUTHORITY: &str = "iqn.2026-11.org.spindle:";

/// Arguments of `present`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle volume present mail/store@monday --to backup1 --read-only --for 8h
  spindle volume present mail/store@monday --to backup1 --clone --for 2h
  spindle volume present mail/store@monday --to iqn.2026-11.org.example:lab --clone --name lab --keep-clone --for 3d
  spindle volume present mail/store@monday --to backup1 --read-only --target backups --lun 5 --for 8h

The host sees a disk of its own, with another serial number than the volume's, and nobody else sees it. It gets a target of \
its own, unless --target names one of the site in the same pool. It logs in with the CHAP secret that the site has for it. \
Read-only, writes are refused. A clone takes space for what is written to it, and is removed with that at the end, unless \
--keep-clone is said. At its time the presentation ends, also under a host that is logged in: ten minutes before, an event \
warns if one is. A server that was down then ends it when it starts. Until then nobody deletes the point. 'spindle volume \
withdraw' ends it earlier. It takes a server: the pool is one that 'spindle serve' has open. --json prints the row of the \
API.")]
pub struct PresentArguments {
    /// The point: a snapshot of a volume
    #[arg(value_name = "POOL/VOLUME@POINT")]
    pub point: PathBuf,

    /// The host: iSCSI name, or the end behind the last colon of an initiator that the site has
    #[arg(long, value_name = "INITIATOR")]
    pub to: String,

    /// The point itself, which refuses writes
    #[arg(long, required_unless_present = "clone", conflicts_with = "clone")]
    pub read_only: bool,

    /// A clone of it, which can be written
    #[arg(long)]
    pub clone: bool,

    /// Time until it ends: 90s, 30min, 8h, 3d
    #[arg(long = "for", value_name = "DURATION", value_parser = parse_duration)]
    pub duration: Duration,

    /// A target of the site, in the same pool
    #[arg(long, value_name = "NAME")]
    pub target: Option<String>,

    /// Logical unit number; the lowest free one if left out
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(0..=16383))]
    pub lun: Option<u64>,

    /// Name of the clone
    #[arg(long, value_name = "NAME", requires = "clone")]
    pub name: Option<String>,

    /// The clone stays at the end
    #[arg(long, requires = "clone")]
    pub keep_clone: bool,
}

/// Arguments of `presentations`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle volume presentations mail
  spindle volume presentations mail --json

Those of a pool, by their ends. --json prints the rows of the API.")]
pub struct PresentationsArguments {
    /// Pool of the server
    #[arg(value_name = "POOL")]
    pub pool: PathBuf,
}

/// Arguments of `withdraw`.
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  spindle volume withdraw mail/store@monday
  spindle volume withdraw mail/store@monday --from iqn.2026-11.org.example:backup1 --yes store-monday

The host is logged out. A clone is removed with what was written to it: type its name, or say it with --yes; or say \
--keep-clone. --json prints the answer of the API.")]
pub struct WithdrawArguments {
    /// The point that is presented
    #[arg(value_name = "POOL/VOLUME@POINT")]
    pub point: PathBuf,

    /// The host, if the point is presented to several: iSCSI name, or its end behind the last colon
    #[arg(long, value_name = "INITIATOR")]
    pub from: Option<String>,

    /// The target, if the host has the point by several: the end of its iSCSI name
    #[arg(long, value_name = "NAME")]
    pub target: Option<String>,

    /// The clone stays
    #[arg(long)]
    pub keep_clone: bool,

    /// Name of the clone that is removed, in place of the question on the terminal
    #[arg(long, value_name = "NAME")]
    pub yes: Option<String>,
}

/// Presents a point to a host.
pub fn present(options: VerbOptions<'_>, arguments: &PresentArguments) -> Result<ExitStatus, Refusal> {
    let wanted = point_of(&arguments.point)?;
    real::run(0, RealOptions::default(), async |world: World| {
        let console = Console::new(options.json, false);
        let pool = served(&world, &wanted.folder, options.server).await?;
        let volume = pool.volume_row(&wanted.volume).await?;
        let point = wanted.snapshot.as_deref().map(SnapshotRef::from).expect("it names a point");
        let body = NewPresentationBody {
            snapshot: pool.snapshot_id(&volume, &point).await?,
            initiator: arguments.to.clone(),
            seconds: arguments.duration.as_secs(),
            target: arguments.target.clone(),
            number: arguments.lun,
            clone: arguments.clone,
            clone_name: arguments.name.clone(),
            keep_clone: arguments.keep_clone,
        };
        let path = format!("/v1/volumes/{}/presentations", volume.id);
        let row: PresentationRow = pool.send(Method::POST, &path, Some(&body)).await?.parsed()?;
        if options.json {
            console.json_of(&row)?;
        }
        let shown = arguments.point.display().to_string();
        let withdraw = format!("spindle volume withdraw {}{}", quoted(&shown), pool.repeated());
        text_of(&shown, &row, arguments.target.is_some(), &withdraw)
            .iter()
            .for_each(|line| console.say(line));
        if !row.has_chap {
            console.warn(&format!(
                "{} has no CHAP secret: any host that reaches the server and claims this name reaches the disk; \
                 'spindle initiator' gives it a secret",
                row.initiator
            ));
        }
        console.finish(ExitStatus::Pass)
    })
}

/// Lists the presentations of a pool.
pub fn list(options: VerbOptions<'_>, arguments: &PresentationsArguments) -> Result<ExitStatus, Refusal> {
    real::run(0, RealOptions::default(), async |world: World| {
        let console = Console::new(options.json, false);
        let pool = served(&world, &arguments.pool, options.server).await?;
        let path = format!("/v1/presentations?pool={}", in_uri(pool.name()));
        let all: PresentationList = pool.server().get(&path).await?;
        if options.json {
            console.json_of(&all)?;
        }
        if all.presentations.is_empty() {
            console.say(&format!("no point of {} is presented", arguments.pool.display()));
        }
        all.presentations.iter().for_each(|row| console.say(&line_of(row)));
        console.finish(ExitStatus::Pass)
    })
}

/// Ends a presentation before its time.
pub fn withdraw(options: VerbOptions<'_>, arguments: &WithdrawArguments) -> Result<ExitStatus, Refusal> {
    let wanted = point_of(&arguments.point)?;
    real::run(0, RealOptions::default(), async |world: World| {
        let console = Console::new(options.json, false);
        let pool = served(&world, &wanted.folder, options.server).await?;
        let row = presented(&pool, &wanted, arguments).await?;
        let shown = arguments.point.display().to_string();
        if let Some(clone) = row.clone.as_ref().filter(|_| !row.keeps_clone && !arguments.keep_clone) {
            let users = if row.sessions > 0 { ", which is logged in" } else { "" };
            let line = format!(
                "{shown}: not presented to {}{users} any more; its clone {clone} → deleted, with what was written to it; \
                 nothing brings it back, and --keep-clone keeps it",
                row.initiator
            );
            Destruction { line, name: clone.clone() }.confirm(&console, arguments.yes.as_deref())?;
        }
        let end = if arguments.keep_clone { "?keep_clone=true" } else { "" };
        let path = format!("/v1/presentations/{}{end}", row.id);
        let ended: PresentationEndRow = pool.send(Method::DELETE, &path, None::<&()>).await?.parsed()?;
        if options.json {
            console.json_of(&ended)?;
        }
        console.say(&format!("{shown}: not presented to {} any more", row.initiator));
        ended.logged_out.iter().for_each(|host| console.say(&format!("logged out: {host}")));
        ended.clone.iter().for_each(|fate| console.say(fate));
        console.finish(ExitStatus::Pass)
    })
}

/// The presentation of a point that is meant.
async fn presented(
    pool: &OnlinePool,
    wanted: &VolumePath,
    arguments: &WithdrawArguments,
) -> Result<PresentationRow, Refusal> {
    let volume = pool.volume_row(&wanted.volume).await?;
    let point = wanted.snapshot.as_deref().map(SnapshotRef::from).expect("it names a point");
    let snapshot = pool.snapshot_id(&volume, &point).await?;
    let all: PresentationList = pool.server().get(&format!("/v1/presentations?volume={}", volume.id)).await?;
    let is_meant = |row: &PresentationRow| {
        let is_host = |host: &String| {
            row.initiator.eq_ignore_ascii_case(host)
                || row.initiator.rsplit(':').next().is_some_and(|end| end.eq_ignore_ascii_case(host))
        };
        let is_target = |name: &String| {
            let name = name.to_ascii_lowercase();
            row.target == name || row.target.strip_prefix(AUTHORITY).is_some_and(|end| end == name)
        };
        row.snapshot == snapshot
            && arguments.from.as_ref().is_none_or(is_host)
            && arguments.target.as_ref().is_none_or(is_target)
    };
    let mut rows: Vec<PresentationRow> = all.presentations.into_iter().filter(is_meant).collect();
    let shown = arguments.point.display();
    match rows.len() {
        1 => Ok(rows.remove(0)),
        0 => Err(Refusal::new(
            match arguments.from.is_some() || arguments.target.is_some() {
                true => format!("{shown} is not presented so"),
                false => format!("{shown} is not presented"),
            },
            format!("see 'spindle volume presentations {}'", pool.word()),
        )),
        many => {
            let all: Vec<String> =
                rows.iter().map(|row| format!("to {} by {}", row.initiator, row.target)).collect();
            Err(Refusal::new(
                format!("{shown} is presented {many} times: {}", all.join(", ")),
                "say ⟨from⟩ INITIATOR, or ⟨target⟩ NAME",
            ))
        }
    }
}

/// The pool at its server.
async fn served(world: &World, pool: &Path, server: &ServerAddress) -> Result<OnlinePool, Refusal> {
    match PoolPlace::of(world, pool, server).await? {
        PoolPlace::Served(pool) => Ok(*pool),
        PoolPlace::Folder => Err(Refusal::new(
            format!("no server has {} open, and presenting takes one", pool.display()),
            "serve it with 'spindle serve', or name the server with ⟨server⟩",
        )),
    }
}

fn point_of(path: &Path) -> Result<VolumePath, Refusal> {
    let wanted = VolumePath::of(path).filter(|wanted| wanted.snapshot.is_some());
    wanted.ok_or_else(|| {
        let problem = format!("{} names no point of a volume", path.display());
        Refusal::new(problem, "say POOL/VOLUME@POINT; 'spindle volume snapshot' takes one")
    })
}

/// The presentation, and the commands of its host.
fn text_of(shown: &str, row: &PresentationRow, is_of_site: bool, withdraw: &str) -> Vec<String> {
    let PresentationRow { initiator, target, number, ends, identity, .. } = row;
    let form = match &row.clone {
        Some(clone) => format!("as the writable clone {clone}"),
        None => "read-only".to_owned(),
    };
    let mut lines =
        vec![format!("{shown}: presented {form} to {initiator} until {ends}, as unit {number} of {target}")];
    let portal = row.portal.as_deref().map_or_else(|| "SERVER:3260".to_owned(), for_hosts);
    lines.push(format!("on the host ({initiator}), as root:"));
    lines.push(format!("  iscsiadm -m discovery -t sendtargets -p {portal}"));
    lines.push(format!("  iscsiadm -m node -T {target} -p {portal} --login"));
    if is_of_site {
        lines.push(
            "  iscsiadm -m session --rescan       if it was logged in to that target before".to_owned(),
        );
    }
    lines.push(format!(
        "  /dev/disk/by-path/ip-{portal}-iscsi-{target}-lun-{number} is the disk, UUID {identity}"
    ));
    if row.is_read_only {
        lines.push(
            "  mount -o ro                        of ext4 also noload, of XFS also norecovery,nouuid"
                .to_owned(),
        );
    }
    lines.push("  umount, then iscsiadm -m node -T … --logout, before the end".to_owned());
    if portal.starts_with("SERVER") {
        lines.push("SERVER is an address of the server that the host reaches".to_owned());
    }
    if row.has_chap {
        lines.push("the host logs in with the CHAP user and secret that it has at this server".to_owned());
    }
    let fate = match &row.clone {
        Some(clone) if row.keeps_clone => format!("the clone {clone} stays then"),
        Some(clone) => format!("the clone {clone} and what was written to it are removed then"),
        None => "the point stays until then, and after".to_owned(),
    };
    lines.push(format!("at {ends} the host is logged out, and {fate}; earlier: {withdraw}"));
    lines
}

/// The portal as a host names it.
fn for_hosts(portal: &str) -> String {
    let (host, port) = portal.rsplit_once(':').unwrap_or((portal, "3260"));
    if ["0.0.0.0", "[::]", "::"].contains(&host) { format!("SERVER:{port}") } else { portal.to_owned() }
}

/// A row of the list.
fn line_of(row: &PresentationRow) -> String {
    let form = row.clone.as_ref().map_or_else(|| "read-only".to_owned(), |clone| format!("clone {clone}"));
    let state = match (row.state, &row.problem) {
        (PresentationState::Beginning, _) => ", being made".to_owned(),
        (PresentationState::Ending, _) => ", being ended".to_owned(),
        (_, Some(problem)) => format!(", not served: {problem}"),
        (_, None) => match row.sessions {
            0 => String::new(),
            1 => ", 1 session".to_owned(),
            many => format!(", {many} sessions"),
        },
    };
    format!(
        "{}: {form}, to {} until {}, unit {} of {}{state}",
        row.path, row.initiator, row.ends, row.number, row.target
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_portal_on_all_addresses_is_no_address_for_hosts() {
        assert_eq!(for_hosts("10.0.0.5:3261"), "10.0.0.5:3261");
        assert_eq!(for_hosts("0.0.0.0:3260"), "SERVER:3260");
        assert_eq!(for_hosts("[::]:3260"), "SERVER:3260");
    }
}
