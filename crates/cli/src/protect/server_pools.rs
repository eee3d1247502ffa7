//! The pools of a server, as the keeper of a set asks them.
//!
//! Invariant: a volume is known by its UUID before an application waits for its cut; one that was not found is asked for again.

use crate::server::connection::ServerConnection;
use control::sets::points::parts_of_id;
use control::web::{
    client::{BackupPointList, BackupPointRow, Method, NewSnapshotsBody, TakenCut, in_uri},
    rows::{PoolState, VolumePage},
};
use protect::{
    backup::{StepError, StepResult},
    catalogue::{CutPoint, FoundPoint, PointNote, SetId},
    set_keeper::{BackupPools, PoolRoom, PoolsAnswer, SetVolume, WantedCut},
};
use report::Refusal;
use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
    time::Duration,
};
use world::{LocalFuture, Moment, World, with_deadline};

/// Longest wait for an answer that no application waits for.
const ANSWER_MAX: Duration = Duration::from_secs(90);
const NOT_FOUND: u16 = 404;

/// The pools of one set's volumes.
pub struct ServerPools(Rc<Inner>);

struct Inner {
    world: World,
    server: Rc<ServerConnection>,
    set: String,
    volumes: Vec<SetVolume>,
    /// UUIDs of the volumes, by pool and name.
    ids: RefCell<BTreeMap<(String, String), String>>,
    /// Identity in the notes of the set's points.
    set_id: RefCell<Option<SetId>>,
}

impl ServerPools {
    pub fn new(world: &World, server: &Rc<ServerConnection>, set: &str, volumes: &[SetVolume]) -> Self {
        Self(Rc::new(Inner {
            world: world.clone(),
            server: Rc::clone(server),
            set: set.to_owned(),
            volumes: volumes.to_vec(),
            ids: RefCell::default(),
            set_id: RefCell::default(),
        }))
    }

    /// Asks the server for the volumes of the set.
    ///
    /// # Errors
    ///
    /// It does not answer, or lacks a volume.
    pub async fn check(&self) -> Result<(), Refusal> {
        self.0.find_volumes().await?;
        match self.0.volumes.iter().find(|volume| self.0.id_of(volume).is_none()) {
            None => Ok(()),
            Some(volume) => Err(Refusal::new(
                format!("protect {:?}: the server has no volume {volume}", self.0.set),
                "see 'spindle site show', or correct volumes",
            )),
        }
    }
}

impl Inner {
    fn id_of(&self, volume: &SetVolume) -> Option<String> {
        self.ids.borrow().get(&(volume.pool.clone(), volume.volume.clone())).cloned()
    }

    /// Learns the UUIDs of the set's volumes.
    async fn find_volumes(&self) -> Result<(), Refusal> {
        let names: BTreeSet<&str> = self.volumes.iter().map(|volume| volume.volume.as_str()).collect();
        let mut ids = BTreeMap::new();
        for name in names {
            let page: VolumePage = self.server.get(&format!("/v1/volumes?name={}", in_uri(name))).await?;
            ids.extend(page.volumes.into_iter().map(|volume| ((volume.pool, volume.name), volume.id)));
        }
        *self.ids.borrow_mut() = ids;
        Ok(())
    }

    async fn points(&self, set: &SetId) -> PoolsAnswer {
        let path = format!("/v1/points?set={}", in_uri(&self.set));
        let asking = async {
            if self.ids.borrow().len() < self.volumes.len() {
                self.find_volumes().await?;
            }
            self.server.get::<BackupPointList>(&path).await
        };
        let list = match with_deadline(self.world.sleep(ANSWER_MAX), asking).await {
            Some(Ok(list)) => list,
            Some(Err(refusal)) => return self.all_silent(&refusal.to_string()),
            None => return self.all_silent(&format!("no answer within {} s", ANSWER_MAX.as_secs())),
        };
        *self.set_id.borrow_mut() = Some(set.clone());
        let mut answer = PoolsAnswer {
            asked: list.pools.into_iter().collect(),
            silent: list.silent,
            ..PoolsAnswer::default()
        };
        for row in list.points {
            match PointNote::decode(row.note.as_bytes()) {
                Ok(Some(note)) if note.set == *set => {
                    let (found, is_used) = (found(&row), !row.services.is_empty());
                    answer.in_use.extend(is_used.then(|| found.point.clone()));
                    answer.found.push(found);
                }
                Ok(Some(note)) => *answer.of_others.entry(note.set.to_string()).or_default() += 1,
                // Of a newer program, or damaged: nobody's.
                Ok(None) | Err(_) => {}
            }
        }
        answer
    }

    fn all_silent(&self, why: &str) -> PoolsAnswer {
        let pools = self.volumes.iter().map(|volume| (volume.pool.clone(), why.to_owned()));
        PoolsAnswer { silent: pools.collect(), ..PoolsAnswer::default() }
    }

    async fn cut(&self, cut: WantedCut, deadline: Moment) -> Result<Vec<CutPoint>, StepError> {
        let left = deadline.since(self.world.now());
        let ids = cut.volumes.iter().map(|volume| {
            self.id_of(volume).ok_or_else(|| StepError(format!("the server has no volume {volume}")))
        });
        let volumes: Vec<String> = ids.collect::<Result<_, _>>()?;
        let within_ms = Some(u64::try_from(left.as_millis()).unwrap_or(u64::MAX));
        let body = NewSnapshotsBody { name: cut.name, note: cut.note, volumes, within_ms };
        let reply = self.server.change(Method::POST, "/v1/snapshots", Some(&body)).await;
        let taken: TakenCut = reply.and_then(|reply| reply.parsed()).map_err(|refusal| {
            // A volume may have another UUID now.
            self.ids.borrow_mut().clear();
            StepError(refusal.to_string())
        })?;
        let by_id: BTreeMap<&String, &SetVolume> = body.volumes.iter().zip(&cut.volumes).collect();
        let points = taken.snapshots.iter().filter_map(|row| {
            let SetVolume { pool, volume, .. } = by_id.get(&row.volume_id)?;
            let id = format!("{}/{}", row.volume_id, row.id);
            Some(CutPoint { pool: pool.clone(), volume: volume.clone(), id })
        });
        let points: Vec<CutPoint> = points.collect();
        match points.len() == cut.volumes.len() {
            true => Ok(points),
            false => Err(StepError("the server took a snapshot of other volumes".to_owned())),
        }
    }

    async fn remove(&self, points: Vec<CutPoint>) -> StepResult {
        let set = self.set_id.borrow().as_ref().map(ToString::to_string);
        let set = set.ok_or_else(|| StepError("the server was not asked yet".to_owned()))?;
        for point in points {
            let (volume, snapshot) = parts_of_id(&point.id);
            let path = format!("/v1/volumes/{}/snapshots/{}?set={set}", in_uri(volume), in_uri(snapshot));
            let removing = self.server.change(Method::DELETE, &path, None::<&()>);
            let reply = with_deadline(self.world.sleep(ANSWER_MAX), removing).await;
            let reply = reply.ok_or_else(|| StepError("the server does not answer".to_owned()))?;
            let reply = reply.map_err(|refusal| StepError(refusal.to_string()))?;
            if reply.status != NOT_FOUND {
                reply.checked().map_err(|refusal| StepError(refusal.to_string()))?;
            }
        }
        Ok(())
    }

    async fn rooms(&self) -> Vec<PoolRoom> {
        let rows = with_deadline(self.world.sleep(ANSWER_MAX), self.server.pools()).await;
        let is_of_set = |pool: &str| self.volumes.iter().any(|volume| volume.pool == pool);
        // One that does not answer says so elsewhere.
        let rows = rows.and_then(Result::ok).unwrap_or_default().into_iter();
        rows.filter(|row| row.state == PoolState::Open && is_of_set(&row.name))
            .map(|row| PoolRoom {
                pool: row.name,
                used_bytes: row.used_bytes,
                capacity_bytes: row.usable_bytes,
            })
            .collect()
    }
}

fn found(row: &BackupPointRow) -> FoundPoint {
    let id = format!("{}/{}", row.volume_id, row.snapshot_id);
    FoundPoint {
        point: CutPoint { pool: row.pool.clone(), volume: row.volume.clone(), id },
        name: row.name.clone(),
        note: row.note.clone().into_bytes(),
    }
}

impl BackupPools for ServerPools {
    fn points(&self, set: &SetId) -> LocalFuture<PoolsAnswer> {
        let (inner, set) = (Rc::clone(&self.0), set.clone());
        Box::pin(async move { inner.points(&set).await })
    }

    fn cut(&self, cut: WantedCut, deadline: Moment) -> LocalFuture<Result<Vec<CutPoint>, StepError>> {
        let inner = Rc::clone(&self.0);
        Box::pin(async move { inner.cut(cut, deadline).await })
    }

    fn remove(&self, points: Vec<CutPoint>) -> LocalFuture<StepResult> {
        let inner = Rc::clone(&self.0);
        Box::pin(async move { inner.remove(points).await })
    }

    fn rooms(&self) -> LocalFuture<Vec<PoolRoom>> {
        let inner = Rc::clone(&self.0);
        Box::pin(async move { inner.rooms().await })
    }
}
