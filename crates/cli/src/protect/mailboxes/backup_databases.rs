//! The databases of one backup, brought up from its snapshots.
//!
//! Invariant: the exports of the snapshots are gone when their reader has ended, however it ends.

use crate::{
    console::Console,
    protect::{
        backup_exports::{BackupExports, in_names},
        backup_points::{PointsOfBackup, SetPoints},
        restore::points_to_restore,
    },
    server::{connection::ServerConnection, place::ServerPlace},
    verify::{arguments::VerifyArguments, brought_up::OpenDatabases},
};
use ::verify::running::VerifyLevel;
use recovery::mailbox::{FoundPath, MailLayout};
use report::Refusal;
use std::{fmt::Display, path::PathBuf};
use workload::database::load::mailbox::MailReader;
use world::World;

/// A database with mailboxes.
pub struct NamedDatabase {
    /// `POOL/VOLUME@SNAPSHOT` that it lies on.
    pub point: String,
    /// Of its file there.
    pub name: String,
    pub reader: MailReader,
}

impl NamedDatabase {
    /// The mailbox with its volume, if the database has it.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub async fn find(&self, mailbox: i32) -> Result<Option<(String, FoundPath)>, Refusal> {
        let summary = self.reader.summary(mailbox).await.map_err(|error| self.unread(&error))?;
        let volume = self.point.split('@').next().unwrap_or_default().to_owned();
        let found = FoundPath {
            path: PathBuf::from(&self.name),
            layout: MailLayout::Database,
            bytes: summary.bytes,
            mails: Some(summary.messages),
            newest_s: summary.newest_s,
        };
        Ok((summary.messages > 0).then_some((volume, found)))
    }

    /// The refusal after its reading failed.
    pub fn unread(&self, error: &impl Display) -> Refusal {
        Refusal::new(format!("{}: {error}", self.point), "look into another backup")
    }
}

/// The mail databases of a backup.
pub struct MailDatabases {
    pub databases: Vec<NamedDatabase>,
    /// Parts that could not be looked into, with reasons.
    pub problems: Vec<String>,
    open: OpenDatabases,
}

impl MailDatabases {
    /// Brings them up, lets `read` look into them, and lets go of everything. `purpose` begins the names of the exports.
    ///
    /// # Errors
    ///
    /// The server cannot export the snapshots, they cannot be read, or `read` failed.
    pub async fn with<T>(
        world: &World,
        (server, place): (&ServerConnection, &ServerPlace),
        (known, backup): (&SetPoints, &PointsOfBackup),
        (purpose, console): (&str, &Console),
        read: impl AsyncFnOnce(&Self) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        let exports = BackupExports::of(purpose, backup, points_to_restore(known, backup)?);
        let reading = async {
            let uris = exports.begin(world, server, place).await?;
            let databases =
                Self::bring_up(world, uris.into_iter().zip(exports.snapshots()).collect(), console);
            // Both on the heap: they are too deep for the compiler in one piece.
            let databases = Box::pin(databases).await?;
            let outcome = Box::pin(read(&databases)).await;
            databases.open.close().await;
            outcome
        };
        let outcome = reading.await;
        exports.delete(server).await?;
        outcome
    }

    /// Lets go of them.
    pub async fn close(self) {
        self.open.close().await;
    }

    /// Of devices; each is a URI, with its name for people.
    ///
    /// # Errors
    ///
    /// They cannot be read.
    pub async fn bring_up(
        world: &World,
        named: Vec<(String, String)>,
        console: &Console,
    ) -> Result<Self, Refusal> {
        let in_names = |text: &str| in_names(&named, text);
        let paths = named.iter().map(|(uri, _)| PathBuf::from(uri)).collect();
        let arguments = VerifyArguments::of(paths, VerifyLevel::Chain);
        let open = OpenDatabases::bring_up(world, &arguments, console).await;
        let open =
            open.map_err(|refusal| Refusal::new(in_names(refusal.problem()), in_names(refusal.remedy())))?;
        let mut problems: Vec<String> = open.found.problems.iter().map(|problem| in_names(problem)).collect();
        let mut databases = Vec::new();
        for (path, database) in open.found.groups.iter().flat_map(|group| &group.databases) {
            let path = path.display().to_string();
            let point = named.iter().find(|(uri, _)| path.starts_with(uri)).map(|(_, point)| point.clone());
            match MailReader::of(database) {
                Some(reader) => databases.push(NamedDatabase {
                    point: point.unwrap_or_default(),
                    name: database.name(),
                    reader,
                }),
                None => problems.push(format!("{}: it has no mail table", in_names(&path))),
            }
        }
        Ok(Self { databases, problems, open })
    }

    /// Refuses to go on after Ctrl-C.
    ///
    /// # Errors
    ///
    /// It was pressed.
    pub fn check_not_ended(&self) -> Result<(), Refusal> {
        self.open.check_not_ended()
    }
}
