//! The parts of a pool that host commands use.

use super::{Admission, ImportSources};
use crate::{
    engine::{CommandStages, MapReader, Shared, Throttle},
    log::LogWriter,
};
use std::{any::Any, rc::Rc};

/// The path of host commands, shared by all volumes and snapshots of a pool.
pub(crate) struct HostPath {
    pub shared: Rc<Shared>,
    pub map: MapReader,
    pub log: Rc<LogWriter>,
    /// Times commands, for the mover to give way.
    pub throttle: Rc<Throttle>,
    pub admission: Admission,
    pub stages: Rc<CommandStages>,
    /// Sources of volumes that are being imported.
    pub imports: ImportSources,
    /// Owners of background tasks: the tasks run while anyone has the pool or a volume.
    _background: Vec<Rc<dyn Any>>,
}

impl HostPath {
    pub fn new(
        (map, log): (MapReader, Rc<LogWriter>),
        throttle: Rc<Throttle>,
        admission: Admission,
        background: Vec<Rc<dyn Any>>,
    ) -> Rc<Self> {
        let shared = Rc::clone(&map.shared);
        let stages = CommandStages::new(&shared.world);
        Rc::new(Self {
            shared,
            map,
            log,
            throttle,
            admission,
            stages,
            imports: ImportSources::default(),
            _background: background,
        })
    }
}
