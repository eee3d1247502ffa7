//! Groups, and snapshots over several pools, in pools that a server has open.

use super::online_pool::OnlinePool;
use array::{error::Error, format::PoolId};
use control::web::{
    client::{
        ApiReply, GroupRollbackBody, Method, NewGroupBody, NewGroupClonesBody, NewGroupSnapshotBody,
        NewSnapshotsBody, SettlementBody, TakenCut, VolumeUses, in_uri,
    },
    group_rows::{
        GroupEntry, GroupPage, GroupPartRow, GroupSnapshotRow, MadeByGroup, MadeVolumeRow, SettledRow,
        Settlement, TakenGroupSnapshot, UnsettledGroupRow,
    },
    rows::VolumePage,
};
use report::Refusal;
use serde::Serialize;
use serving::{
    export::WithheldClients,
    pool::{
        cut::{CutStatus, SettledCut},
        folder::refusal,
        group::{GroupStatus, UnsettledOperation},
        note::NoteStatus,
        partner_pools::Partners,
    },
    uuid::parse_uuid,
};
use std::{collections::BTreeMap, path::PathBuf};

const HELP: &str = "see 'spindle group --help'";

/// A volume of a group, and what was made of it, as a person names them.
pub struct MadeByServer {
    pub volume: PathBuf,
    pub made: PathBuf,
    pub withheld: WithheldClients,
}

/// Pools of a server as a person names them.
pub struct ServedPoolNames {
    given: BTreeMap<String, PathBuf>,
    /// Beside the folder that was given.
    partners: Option<Partners>,
    /// Names at the server, by UUID.
    names: BTreeMap<String, String>,
}

impl ServedPoolNames {
    /// The names of the pools of a server, some of which were given.
    ///
    /// # Errors
    ///
    /// The server does not answer.
    pub async fn of(given: &[&OnlinePool]) -> Result<Self, Refusal> {
        let first = given.first().expect("one is given at least");
        let rows = first.server().pools().await?;
        let names = rows.into_iter().filter_map(|row| Some((row.id?, row.name)));
        Ok(Self {
            given: given.iter().map(|pool| (pool.id().to_owned(), pool.place().to_owned())).collect(),
            partners: first.is_folder().then(|| Partners::near(first.place(), &[])),
            names: names.collect(),
        })
    }

    /// The folder or the name of a pool.
    fn place_of(&self, id: &str) -> PathBuf {
        if let Some(place) = self.given.get(id) {
            return place.clone();
        }
        let folder = self.partners.as_ref().and_then(|near| Some(near.folder_of(pool_id(id)?)?.to_owned()));
        let name = || self.names.get(id).map(PathBuf::from);
        folder.or_else(name).unwrap_or_else(|| PathBuf::from(format!("pool {id}")))
    }

    /// As [`Self::place_of`], in a text.
    fn name_of(&self, id: &str) -> String {
        self.place_of(id).display().to_string()
    }
}

fn pool_id(id: &str) -> Option<PoolId> {
    parse_uuid(id).ok().map(PoolId)
}

impl OnlinePool {
    /// Groups with a part in this pool, or the one of a name.
    ///
    /// # Errors
    ///
    /// No such group; the server does not answer.
    pub async fn groups(&self, wanted: Option<&str>) -> Result<Vec<GroupEntry>, Refusal> {
        let (mut rows, mut after) = (Vec::new(), String::new());
        let name = wanted.map_or_else(String::new, |name| format!("&name={}", in_uri(name)));
        loop {
            let path = format!("/v1/groups?pool={}{name}&limit=5000{after}", self.id());
            let page: GroupPage = self.server().get(&path).await?;
            rows.extend(page.groups);
            match page.next {
                Some(next) => after = format!("&after={}", in_uri(&next)),
                None => break,
            }
        }
        match wanted {
            Some(name) if rows.is_empty() => Err(self.group_refusal(&Error::NoGroup(name.to_owned()))),
            _ => Ok(rows),
        }
    }

    /// The group of this name.
    ///
    /// # Errors
    ///
    /// As of [`Self::groups`].
    pub async fn group(&self, name: &str) -> Result<GroupEntry, Refusal> {
        let found = self.groups(Some(name)).await?.into_iter().next();
        found.ok_or_else(|| self.group_refusal(&Error::NoGroup(name.to_owned())))
    }

    /// The groups of this pool as they are shown of a stopped one.
    ///
    /// # Errors
    ///
    /// As of [`Self::groups`].
    pub async fn group_statuses(&self, wanted: Option<&str>) -> Result<Vec<GroupStatus>, Refusal> {
        let rows = self.groups(wanted).await?;
        let names = ServedPoolNames::of(&[self]).await?;
        let mut all: Vec<(String, GroupStatus)> = Vec::new();
        for row in rows {
            let others = row.parts.iter().map(|part| &part.pool_id).chain(&row.other_pools);
            let mut others: Vec<&String> = others.filter(|pool| *pool != self.id()).collect();
            others.sort();
            let other_pools = others.into_iter().map(|pool| names.name_of(pool)).collect();
            let Some(part) = row.parts.into_iter().find(|part| part.pool_id == self.id()) else { continue };
            all.push((part.made_at.clone(), status_of((row.name, row.id), part, other_pools, &names)));
        }
        // In the order of their creation, as far as the time tells.
        all.sort_by(|(one, _), (other, _)| one.cmp(other));
        Ok(all.into_iter().map(|(_, status)| status).collect())
    }

    /// Makes a group of volumes.
    ///
    /// # Errors
    ///
    /// It is refused, or there is one of this name; the server does not answer.
    pub async fn create_group(&self, name: &str, volumes: Vec<String>) -> Result<(), Refusal> {
        let body = NewGroupBody { name: name.to_owned(), volumes };
        self.new_of_group(self.to_its_end(Method::POST, "/v1/groups", Some(&body)).await?, name).map(|_| ())
    }

    /// Takes a snapshot of a group. Returns the number of its volumes.
    ///
    /// # Errors
    ///
    /// It is refused, or there is one of this name; the server does not answer.
    pub async fn snapshot_group(&self, group: &str, name: &str, note: &str) -> Result<usize, Refusal> {
        let row = self.group(group).await?;
        let body = NewGroupSnapshotBody { name: name.to_owned(), note: note.to_owned() };
        let path = format!("/v1/groups/{}/snapshots", row.id);
        let reply = self.to_its_end(Method::POST, &path, Some(&body)).await?;
        Ok(self.new_of_group(reply, name)?.parsed::<TakenGroupSnapshot>()?.volumes)
    }

    /// Deletes a group, or a snapshot of one.
    ///
    /// # Errors
    ///
    /// It is refused, or not there; the server does not answer.
    pub async fn delete_group(&self, group: &str, snapshot: Option<&str>) -> Result<(), Refusal> {
        let row = self.group(group).await?;
        let path = match snapshot {
            None => format!("/v1/groups/{}", row.id),
            Some(name) => format!("/v1/groups/{}/snapshots/{}", row.id, self.snapshot_of(&row, name)?.id),
        };
        self.to_its_end(Method::DELETE, &path, None::<&()>).await?.checked().map(|_| ())
    }

    /// A snapshot of a group by its name.
    fn snapshot_of<'r>(&self, row: &'r GroupEntry, name: &str) -> Result<&'r GroupSnapshotRow, Refusal> {
        let mut all = row.parts.iter().flat_map(|part| &part.snapshots);
        all.find(|snapshot| snapshot.name == name).ok_or_else(|| {
            let (group, snapshot) = (row.name.clone(), name.to_owned());
            self.group_refusal(&Error::NoGroupSnapshot { group, snapshot })
        })
    }

    /// Clones a snapshot of a group.
    ///
    /// # Errors
    ///
    /// It is refused; the server does not answer.
    pub async fn clone_group(
        &self,
        group: &str,
        snapshot: &str,
        (suffix, is_independent): (&str, bool),
    ) -> Result<Vec<MadeByServer>, Refusal> {
        let row = self.group(group).await?;
        let (snapshot, suffix) = (snapshot.to_owned(), suffix.to_owned());
        let body = NewGroupClonesBody { snapshot, suffix, independent: is_independent };
        let reply =
            self.to_its_end(Method::POST, &format!("/v1/groups/{}/clones", row.id), Some(&body)).await?;
        self.made_of(reply.parsed()?).await
    }

    /// Rolls a group back to a snapshot.
    ///
    /// # Errors
    ///
    /// It is refused; the server does not answer.
    pub async fn roll_back_group(
        &self,
        group: &str,
        snapshot: &str,
        is_forced: bool,
    ) -> Result<Vec<MadeByServer>, Refusal> {
        let row = self.group(group).await?;
        let body = GroupRollbackBody { snapshot: snapshot.to_owned(), force: is_forced };
        let reply =
            self.to_its_end(Method::POST, &format!("/v1/groups/{}/rollback", row.id), Some(&body)).await?;
        self.made_of(reply.parsed()?).await
    }

    /// Volumes of a group that are served, with services and clients; those of this pool first.
    ///
    /// # Errors
    ///
    /// No such group or snapshot; the server does not answer.
    pub async fn group_uses(
        &self,
        group: &str,
        snapshot: &str,
    ) -> Result<Vec<(PathBuf, VolumeUses)>, Refusal> {
        let row = self.group(group).await?;
        self.snapshot_of(&row, snapshot)?;
        let names = ServedPoolNames::of(&[self]).await?;
        let mut used = Vec::new();
        for part in self.in_order(row.parts, |part| &part.pool_id) {
            for volume in &part.volumes {
                let uses: VolumeUses = self.server().get(&format!("/v1/volumes/{}/uses", volume.id)).await?;
                if !uses.services.is_empty() {
                    used.push((names.place_of(&part.pool_id).join(&volume.name), uses));
                }
            }
        }
        Ok(used)
    }

    async fn made_of(&self, MadeByGroup { made }: MadeByGroup) -> Result<Vec<MadeByServer>, Refusal> {
        let names = ServedPoolNames::of(&[self]).await?;
        let made = self.in_order(made, |row: &MadeVolumeRow| &row.pool_id);
        let made = made.into_iter().map(|row| {
            let pool = names.place_of(&row.pool_id);
            MadeByServer {
                volume: pool.join(row.volume),
                made: pool.join(row.made),
                withheld: WithheldClients { initiators: row.withheld_from, nbd: row.withheld_from_nbd },
            }
        });
        Ok(made.collect())
    }

    /// Rows of this pool first, then those of the others by UUID: as a command that opens the pools has them.
    fn in_order<R>(&self, mut rows: Vec<R>, pool: impl Fn(&R) -> &String) -> Vec<R> {
        rows.sort_by(|one, other| {
            let key = |row: &R| (pool(row) != self.id(), pool(row).clone());
            key(one).cmp(&key(other))
        });
        rows
    }

    /// UUIDs of volumes of this pool by their names; `remedy` is for names that it does not have.
    ///
    /// # Errors
    ///
    /// There is none of a name; the server does not answer.
    pub async fn volume_ids(&self, names: &[String], remedy: &str) -> Result<Vec<String>, Refusal> {
        let mut ids = Vec::new();
        for name in names {
            let path = format!("/v1/volumes?pool={}&name={}", self.id(), in_uri(name));
            let page: VolumePage = self.server().get(&path).await?;
            let found = page.volumes.into_iter().next().map(|row| row.id);
            let missing = || refusal(self.place(), &Error::NoVolume(name.clone()), remedy);
            ids.push(found.ok_or_else(missing)?);
        }
        Ok(ids)
    }

    /// Takes a snapshot of volumes of several pools by their UUIDs. Returns for how many milliseconds hosts were held.
    ///
    /// # Errors
    ///
    /// It is refused; the server does not answer.
    pub async fn cut(&self, volumes: Vec<String>, (name, note): (&str, &str)) -> Result<f64, Refusal> {
        let body =
            NewSnapshotsBody { name: name.to_owned(), note: note.to_owned(), volumes, within_ms: None };
        let taken: TakenCut = self.to_its_end(Method::POST, "/v1/snapshots", Some(&body)).await?.parsed()?;
        Ok(taken.held_ms)
    }

    async fn to_its_end<B: Serialize>(
        &self,
        method: Method,
        path: &str,
        body: Option<&B>,
    ) -> Result<ApiReply, Refusal> {
        self.server().change_to_its_end(method, path, body).await
    }

    /// As for volumes: a person learns that the name is taken.
    fn new_of_group(&self, reply: ApiReply, name: &str) -> Result<ApiReply, Refusal> {
        match reply.status == 200 {
            true => Err(self.group_refusal(&Error::NameTaken(name.to_owned()))),
            false => reply.checked(),
        }
    }

    fn group_refusal(&self, error: &Error) -> Refusal {
        refusal(self.place(), error, HELP)
    }
}

/// Settles what ended early in pools of one server.
///
/// # Errors
///
/// A pool cannot write; nothing waits of the name that is to be given up; the server does not answer.
pub async fn settle(pools: &[&OnlinePool], give_up: Option<&str>) -> Result<Vec<SettledCut>, Refusal> {
    let first = pools.first().expect("one is given at least");
    let ids = pools.iter().map(|pool| pool.id().to_owned()).collect();
    let body = SettlementBody { pools: ids, give_up: give_up.map(str::to_owned) };
    let reply = first.to_its_end(Method::POST, "/v1/settlement", Some(&body)).await?;
    let Settlement { settled } = reply.parsed()?;
    let names = ServedPoolNames::of(pools).await?;
    let settled = settled.into_iter().map(|SettledRow { name, operation, outcome, waits_for }| SettledCut {
        snapshot: name,
        operation: operation.map(Into::into),
        outcome: outcome.into(),
        waits_for: waits_for.iter().map(|pool| names.name_of(pool)).collect(),
    });
    Ok(settled.collect())
}

fn status_of(
    (name, group): (String, String),
    part: GroupPartRow,
    other_pools: Vec<String>,
    names: &ServedPoolNames,
) -> GroupStatus {
    let GroupPartRow { made_at, volumes, snapshots, unsettled, .. } = part;
    let cut = |snapshot: &GroupSnapshotRow| CutStatus {
        snapshot: snapshot.name.clone(),
        is_whole: !snapshot.is_pending,
        pools: snapshot.unsettled_pools.iter().map(|pool| names.name_of(pool)).collect(),
    };
    let note = |snapshot: &GroupSnapshotRow| {
        let GroupSnapshotRow { name, note, note_hex, .. } = snapshot.clone();
        let is_there = note.is_some() || note_hex.is_some();
        is_there.then_some(NoteStatus { snapshot: name, note, note_hex })
    };
    let operation = |UnsettledGroupRow { operation, snapshot, has_happened }| UnsettledOperation {
        operation: operation.into(),
        snapshot,
        has_happened,
    };
    GroupStatus {
        name,
        group,
        created_at: made_at,
        volumes: volumes.into_iter().map(|volume| volume.name).collect(),
        other_pools,
        cuts: snapshots.iter().filter(|snapshot| !snapshot.unsettled_pools.is_empty()).map(cut).collect(),
        unsettled: unsettled.map(operation),
        notes: snapshots.iter().filter_map(note).collect(),
        snapshots: snapshots.into_iter().map(|snapshot| snapshot.name).collect(),
    }
}
