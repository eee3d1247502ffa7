//! The pool that a command names: a folder that it opens, or a pool that a server has open.
//!
//! Invariants:
//!
//! 1. A folder that is a pool is that pool. While a server has it open, the server makes the changes.
//! 2. A name that is both, a folder and another pool of this machine's server, is refused: nobody can know which is meant.

use super::online_pool::OnlinePool;
use crate::{
    server::{connection::ServerConnection, place::ServerAddress},
    state_folder::state_folder,
};
use control::web::rows::PoolRow;
use report::Refusal;
use serving::pool::{folder::is_held, record::is_pool, server_link::ServerLink};
use std::path::{Component, Path};
use world::{Address, World, real::host_files};

/// A pool, by who has it open.
pub enum PoolPlace {
    /// Nobody, or nobody that takes requests.
    Folder,
    Served(Box<OnlinePool>),
}

impl PoolPlace {
    /// The place of a pool that is given as a folder or a name.
    ///
    /// # Errors
    ///
    /// Both are there; there is no such pool at the named server; the server refuses this caller.
    pub async fn of(world: &World, pool: &Path, address: &ServerAddress) -> Result<Self, Refusal> {
        Self::find(world, pool, (address, "/VOLUME")).await
    }

    /// As [`PoolPlace::of`], for a verb about the pool itself.
    ///
    /// # Errors
    ///
    /// As of [`PoolPlace::of`].
    pub async fn of_pool(world: &World, pool: &Path, address: &ServerAddress) -> Result<Self, Refusal> {
        Self::find(world, pool, (address, "")).await
    }

    /// `end` is what follows the pool in the paths of the verb.
    async fn find(
        world: &World,
        pool: &Path,
        (address, end): (&ServerAddress, &str),
    ) -> Result<Self, Refusal> {
        if let Some(server) = address.connection(world)? {
            return Ok(Self::Served(Box::new(at_server(server, pool, end).await?.named_by(address))));
        }
        let is_folder = is_pool(pool);
        if is_folder && let Some(served) = by_folder(world, pool).await? {
            return Ok(Self::Served(Box::new(served)));
        }
        let Some(name) = name_of(pool) else { return Ok(Self::Folder) };
        let Some((server, row)) = by_name(world, name).await else { return Ok(Self::Folder) };
        if is_folder && !has_folder(&row, pool) {
            let at = server.address();
            return Err(Refusal::new(
                format!("{name} is the folder of a pool, and a pool of the server at {at}"),
                format!("say ./{name}{end} for the folder, or ⟨server⟩ {at} for the pool of the server"),
            ));
        }
        Ok(Self::Served(Box::new(OnlinePool::new(server, row, pool)?)))
    }
}

/// Pools, by who has them open: all of them a server, or all of them nobody.
pub enum VerbPools {
    Folders,
    Served(Vec<OnlinePool>),
}

impl VerbPools {
    /// The places of pools that are given as folders or names.
    ///
    /// # Errors
    ///
    /// As [`PoolPlace::of`]; or a server has some of them open, and not all.
    pub async fn of(world: &World, pools: &[&Path], address: &ServerAddress) -> Result<Self, Refusal> {
        Self::find(world, pools, (address, "/VOLUME")).await
    }

    /// As [`VerbPools::of`], for a verb about the pools themselves.
    ///
    /// # Errors
    ///
    /// As of [`VerbPools::of`].
    pub async fn of_pools(world: &World, pools: &[&Path], address: &ServerAddress) -> Result<Self, Refusal> {
        Self::find(world, pools, (address, "")).await
    }

    async fn find(
        world: &World,
        pools: &[&Path],
        (address, end): (&ServerAddress, &str),
    ) -> Result<Self, Refusal> {
        let (mut served, mut stopped) = (Vec::new(), Vec::new());
        for pool in pools {
            match PoolPlace::find(world, pool, (address, end)).await? {
                PoolPlace::Served(one) => served.push(*one),
                PoolPlace::Folder => stopped.push(pool.display().to_string()),
            }
        }
        let Some(first) = served.first() else { return Ok(Self::Folders) };
        let at = first.server().address().clone();
        if let Some(stopped) = stopped.first() {
            return Err(Refusal::new(
                format!("{} is open in the server at {at}, and {stopped} is not", first.place().display()),
                "have the server open both, or end it",
            ));
        }
        if let Some(other) = served.iter().find(|other| *other.server().address() != at) {
            let (first, other) = (first.place().display(), other.place().display());
            return Err(Refusal::new(
                format!("{first} and {other} are open in two servers"),
                "have one server open both",
            ));
        }
        Ok(Self::Served(served))
    }
}

/// The pool of this name at a server that was named; `end` is what follows the pool in the paths of the verb.
///
/// # Errors
///
/// It has no such pool, or refuses this caller.
pub async fn at_server(server: ServerConnection, pool: &Path, end: &str) -> Result<OnlinePool, Refusal> {
    let name = name_of(pool).ok_or_else(|| {
        Refusal::new(
            format!("{}: with ⟨server⟩ this is a pool's name", pool.display()),
            format!("say POOL{end}"),
        )
    })?;
    let pools = server.pools().await?;
    let names: Vec<String> = pools.iter().map(|row| row.name.clone()).collect();
    match pools.into_iter().find(|row| row.name == name) {
        Some(row) => OnlinePool::new(server, row, pool),
        None => {
            let next = match names.is_empty() {
                true => "it shows no pools to this caller".to_owned(),
                false => format!("it has {}", names.join(", ")),
            };
            Err(Refusal::new(format!("the server at {} has no pool {name}", server.address()), next))
        }
    }
}

/// The pool of a folder that a server has open.
async fn by_folder(world: &World, folder: &Path) -> Result<Option<OnlinePool>, Refusal> {
    let Some(ServerLink { socket }) = ServerLink::read(folder) else { return Ok(None) };
    // This takes the lock for a moment: not where no server was.
    if !is_held(folder) {
        return Ok(None);
    }
    let server = ServerConnection::new(world, Address::Unix(socket), None);
    if !server.answers().await {
        return Ok(None);
    }
    let row = server.pools().await?.into_iter().find(|row| has_folder(row, folder));
    row.map(|row| OnlinePool::of_folder(server, row, folder)).transpose()
}

/// The pool of this name at the server with the usual state folder.
async fn by_name(world: &World, name: &str) -> Option<(ServerConnection, PoolRow)> {
    let server = ServerConnection::of_folder(world, &state_folder()).ok()?;
    let row = server.pools().await.ok()?.into_iter().find(|row| row.name == name)?;
    Some((server, row))
}

fn has_folder(row: &PoolRow, folder: &Path) -> bool {
    let whole = |path: &Path| host_files::canonical(path).ok();
    let known = row.folder.as_ref().and_then(|known| whole(Path::new(known)));
    known.is_some() && known == whole(folder)
}

/// The name that a path is, if it is no more than one: `./mail` is a folder.
fn name_of(pool: &Path) -> Option<&str> {
    let mut parts = pool.components();
    let is_name = matches!((parts.next(), parts.next()), (Some(Component::Normal(_)), None));
    pool.to_str().filter(|text| is_name && !text.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_word_is_a_name() {
        assert_eq!(name_of(Path::new("mail")), Some("mail"));
        for path in ["./mail", "mail/", "/mail", "a/b", "..", ""] {
            assert_eq!(name_of(Path::new(path)), None, "{path}");
        }
    }
}
