//! The application and the filesystems of this host that a set freezes.

use control::sets::WantedFreeze;
use protect::{
    backup::{
        Freezable,
        filesystem::FilesystemFreeze,
        hooks::{HookSettings, HookedApplication},
    },
    set_keeper::{DatabasesFrozen, ReleasedLogs, RoundFreeze, SetFreezing},
};
use report::Refusal;
use std::{path::PathBuf, rc::Rc};
use world::{
    FreezableMount, LocalFuture, Programs, World,
    real::{
        RealPrograms, Sockets,
        freeze::{RealMount, WritablePlace, check_order, check_privilege},
        user::check_user,
    },
};

/// Hooks and filesystems of one set on this host.
pub struct HostFreeze {
    world: World,
    set: String,
    hooks: Option<HookSettings>,
    mounts: Vec<Rc<dyn FreezableMount>>,
    databases: DatabasesFrozen,
    programs: Rc<dyn Programs>,
}

impl HostFreeze {
    /// Checks that this process may do it, before the first round: `places` must take writes meanwhile.
    ///
    /// # Errors
    ///
    /// A user or a mount is not there, a mount must not be frozen, or this process may not.
    pub fn new(
        world: &World,
        set: &str,
        freeze: &WantedFreeze,
        places: &[WritablePlace],
    ) -> Result<Self, Refusal> {
        let refused = |problem: String| Refusal::new(format!("protect {set:?}: {problem}"), "");
        let WantedFreeze::Here { hooks, mounts: paths, sockets } = freeze else {
            unreachable!("the server keeps sets without an agent")
        };
        let hooks = hooks.as_deref().cloned();
        if let Some(user) = hooks.as_ref().and_then(|hooks| hooks.user.as_deref()) {
            check_user(user).map_err(|error| refused(error.to_string()))?;
        }
        if !paths.is_empty() {
            check_privilege().map_err(|error| refused(error.to_string()))?;
        }
        let open = |path: &PathBuf| RealMount::open(path, places).map_err(|error| refused(error.to_string()));
        let mounts: Vec<RealMount> = paths.iter().map(open).collect::<Result<_, _>>()?;
        check_order(&mounts.iter().collect::<Vec<_>>()).map_err(|error| refused(error.to_string()))?;
        let mounts = mounts.into_iter().map(|mount| Rc::new(mount) as Rc<dyn FreezableMount>).collect();
        let programs = Rc::new(RealPrograms::default());
        let (world, network) = (world.clone(), Rc::new(Sockets));
        let databases = DatabasesFrozen { world: world.clone(), network, sockets: sockets.clone() };
        Ok(Self { world, set: set.to_owned(), hooks, mounts, databases, programs })
    }
}

impl SetFreezing for HostFreeze {
    /// Hooks come first, filesystems last: programs of hooks write.
    fn round(&self, point: &str) -> RoundFreeze {
        let application = self.hooks.as_ref().map(|hooks| {
            let programs = Rc::clone(&self.programs);
            Rc::new(HookedApplication::new(&self.world, programs, hooks.clone(), &self.set, point))
        });
        let mut things: Vec<Rc<dyn Freezable>> = Vec::new();
        things.extend(application.iter().map(|application| Rc::clone(application) as Rc<dyn Freezable>));
        things.extend(self.databases.things(point));
        let filesystem = |mount: &Rc<dyn FreezableMount>| -> Rc<dyn Freezable> {
            Rc::new(FilesystemFreeze::new(&self.world, Rc::clone(mount)))
        };
        things.extend(self.mounts.iter().map(filesystem));
        let hook_runs = move || application.as_ref().map(|one| one.runs()).unwrap_or_default();
        RoundFreeze { things, hook_runs: Box::new(hook_runs) }
    }

    fn release_logs(&self, point: &str) -> LocalFuture<Vec<ReleasedLogs>> {
        self.databases.release(point)
    }
}
