//! The counts of hosts' I/O on all open pools.

use super::series::{KnownSeries, SeriesKey};
use crate::site::handle::SiteView;
use array::format::{PoolId, SnapshotId, VolumeId};
use std::{collections::BTreeMap, sync::Arc};
use world::{DeviceCounts, Moment, WallTime};

/// A volume or a snapshot that is served.
pub(super) type CountKey = (PoolId, VolumeId, Option<SnapshotId>);

/// The I/O of hosts up to now.
pub(super) struct CountsNow {
    pub at: Moment,
    pub volumes: BTreeMap<CountKey, (KnownSeries, Option<Arc<DeviceCounts>>)>,
    /// Names and sizes of open pools, and the times of their counts.
    pub pools: BTreeMap<PoolId, (KnownSeries, Option<WallTime>)>,
}

impl CountsNow {
    /// The counts of all open pools.
    pub fn of(site: &SiteView, at: Moment) -> Self {
        let (mut volumes, mut pools) = (BTreeMap::new(), BTreeMap::new());
        for (name, pool) in &site.pools {
            let Some(figures) = pool.figures() else { continue };
            let mut size_bytes = 0;
            for traffic in figures.volumes.iter() {
                let key = SeriesKey { pool: pool.id, volume: Some(traffic.volume) };
                let (pool_name, volume) = (name.clone(), traffic.name.to_string());
                let known = KnownSeries { key, pool: pool_name, volume, size_bytes: traffic.size_bytes };
                if traffic.snapshot.is_none() {
                    size_bytes += traffic.size_bytes;
                }
                volumes.insert((pool.id, traffic.volume, traffic.snapshot), (known, traffic.counts.clone()));
            }
            let key = SeriesKey { pool: pool.id, volume: None };
            let known = KnownSeries { key, pool: name.clone(), volume: String::new(), size_bytes };
            pools.insert(pool.id, (known, figures.counted_at));
        }
        Self { at, volumes, pools }
    }

    pub fn counts(&self) -> BTreeMap<CountKey, Arc<DeviceCounts>> {
        let counted = self.volumes.iter();
        counted.filter_map(|(key, (_, counts))| Some((*key, Arc::clone(counts.as_ref()?)))).collect()
    }

    pub fn names(&self) -> BTreeMap<SeriesKey, KnownSeries> {
        let volumes = self.volumes.iter().filter(|((_, _, snapshot), _)| snapshot.is_none());
        let volumes = volumes.map(|(_, (known, _))| known);
        volumes
            .chain(self.pools.values().map(|(known, _)| known))
            .map(|known| (known.key, known.clone()))
            .collect()
    }
}
