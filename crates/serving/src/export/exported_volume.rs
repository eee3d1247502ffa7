//! A volume that is exported, and the pool that it is in. It may move to another pool while clients use it.

use array::{
    error::Error,
    pool::{MovedVolume, Pool},
    volume::{SwitchedVolume, Volume, VolumeDevice},
};
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
};
use world::{BlockDevice, Job};

pub struct ExportedVolume {
    switched: SwitchedVolume,
    pool: RefCell<Rc<Pool>>,
    /// Clients use it by the device that can be switched, which costs each command a step.
    is_movable: bool,
    is_cache_forced: Cell<bool>,
}

impl ExportedVolume {
    pub fn new(pool: &Rc<Pool>, volume: Rc<Volume>, is_movable: bool) -> Self {
        Self {
            switched: SwitchedVolume::new(VolumeDevice(volume)),
            pool: RefCell::new(Rc::clone(pool)),
            is_movable,
            is_cache_forced: Cell::new(false),
        }
    }

    /// The pool as it is now.
    pub fn pool(&self) -> Rc<Pool> {
        Rc::clone(&self.pool.borrow())
    }

    /// The device of clients.
    pub fn device(&self) -> Rc<dyn BlockDevice> {
        if self.is_movable { Rc::new(self.switched.clone()) } else { Rc::new(self.switched.volume()) }
    }

    pub fn switched(&self) -> SwitchedVolume {
        self.switched.clone()
    }

    /// The setting of its own.
    pub fn has_write_cache(&self) -> bool {
        self.switched.volume().0.has_write_cache()
    }

    pub fn force_write_cache(&self) {
        self.is_cache_forced.set(true);
        self.switched.volume().0.force_write_cache();
    }

    /// Moves it to another pool, where it gets `name`; clients notice a hold. `volume` is its name now.
    ///
    /// # Errors
    ///
    /// As [`Pool::move_from`]; and it is exported without being movable.
    pub async fn move_to(
        &self,
        pool: &Rc<Pool>,
        (volume, name): (&str, &str),
        job: &Job,
    ) -> Result<MovedVolume, Error> {
        if !self.is_movable {
            return Err(Error::VolumeInUse(volume.to_owned()));
        }
        let from = self.pool();
        let before = self.switched.volume();
        let moved = pool.move_from(&from, volume, name, Some(&self.switched), job).await;
        // It may have been switched although not all was cleared up behind it.
        if !Rc::ptr_eq(&before.0, &self.switched.volume().0) {
            *self.pool.borrow_mut() = Rc::clone(pool);
            if self.is_cache_forced.get() {
                self.force_write_cache();
            }
        }
        moved
    }
}
