//! A vault in memory, with faults: full, cut off, crashes before or after any write, flipped bits.

use super::{VaultFile, VaultFileKind, VaultStore};
use std::{cell::RefCell, collections::BTreeMap, rc::Rc, time::Duration};
use world::{IoError, IoErrorKind, IoResult, LocalFuture, WallTime, World};

/// Time of a call: long enough that other tasks run meanwhile.
const LATENCY: Duration = Duration::from_millis(1);

/// Faults from now on.
#[derive(Clone, Copy, Debug, Default)]
pub struct VaultStoreFaults {
    /// Bytes that still find room.
    pub bytes_left: Option<u64>,
    /// Calls that are still answered; after them the store is out of reach, and nothing changes.
    pub calls_left: Option<u64>,
    /// The change with which the store goes out of reach takes place, although its caller is not told.
    pub is_last_change_done: bool,
}

/// Clones are one store. Its content outlives the world.
#[derive(Clone, Default)]
pub struct SimVaultStore(Rc<RefCell<SimContent>>);

#[derive(Default)]
struct SimContent {
    files: BTreeMap<(VaultFileKind, String), Vec<u8>>,
    faults: VaultStoreFaults,
    calls: u64,
    writes: Vec<(VaultFileKind, u64)>,
}

impl SimVaultStore {
    pub fn set_faults(&self, faults: VaultStoreFaults) {
        self.0.borrow_mut().faults = faults;
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.0.borrow().calls
    }

    /// Bytes of all files written so far, by kind, in their order.
    pub fn writes(&self) -> Vec<(VaultFileKind, u64)> {
        self.0.borrow().writes.clone()
    }

    pub fn names(&self, kind: VaultFileKind) -> Vec<String> {
        self.0.borrow().files.keys().filter(|key| key.0 == kind).map(|key| key.1.clone()).collect()
    }

    /// Changes a file, as damage would. Panics if there is none.
    pub fn edit(&self, kind: VaultFileKind, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        change(self.0.borrow_mut().files.get_mut(&(kind, name.to_owned())).expect("the file exists"));
    }

    /// Removes a file. Panics if there is none.
    pub fn lose(&self, kind: VaultFileKind, name: &str) {
        self.0.borrow_mut().files.remove(&(kind, name.to_owned())).expect("the file exists");
    }

    /// An independent copy without faults.
    pub fn copy(&self) -> Self {
        let files = self.0.borrow().files.clone();
        Self(Rc::new(RefCell::new(SimContent { files, ..SimContent::default() })))
    }

    /// The store in `world`, whose clock completes its calls.
    pub fn in_world(&self, world: &World) -> Rc<dyn VaultStore> {
        Rc::new(SimHandle { store: self.clone(), world: world.clone() })
    }
}

struct SimHandle {
    store: SimVaultStore,
    world: World,
}

impl SimHandle {
    /// A call; `is_change` ones may take place although the caller is not told.
    fn call<T: 'static>(
        &self,
        is_change: bool,
        call: impl FnOnce(&mut SimContent) -> IoResult<T> + 'static,
    ) -> LocalFuture<IoResult<T>> {
        let (pause, content) = (self.world.sleep(LATENCY), Rc::clone(&self.store.0));
        Box::pin(async move {
            pause.await;
            let mut content = content.borrow_mut();
            content.calls += 1;
            if let Some(left) = content.faults.calls_left {
                if left == 0 {
                    return Err(IoError::new(IoErrorKind::Disconnected, "the vault is out of reach"));
                }
                content.faults.calls_left = Some(left - 1);
                if left == 1 && is_change {
                    if content.faults.is_last_change_done {
                        let _ = call(&mut content);
                    }
                    return Err(IoError::new(IoErrorKind::Disconnected, "the vault went out of reach"));
                }
            }
            call(&mut content)
        })
    }
}

fn missing(key: &(VaultFileKind, String)) -> IoError {
    IoError::new(IoErrorKind::NotFound, format!("reading {}: there is no such file", key.0.path(&key.1)))
}

impl VaultStore for SimHandle {
    fn describe(&self) -> String {
        "memory".to_owned()
    }

    fn prepare(&self) -> LocalFuture<IoResult<()>> {
        self.call(true, |_| Ok(()))
    }

    fn sweep(&self, _: WallTime) -> LocalFuture<IoResult<()>> {
        self.call(true, |_| Ok(()))
    }

    fn list(&self, kind: VaultFileKind) -> LocalFuture<IoResult<Vec<VaultFile>>> {
        self.call(false, move |content| {
            let of_kind = content.files.iter().filter(|(key, _)| key.0 == kind);
            let file = |(key, bytes): (&(VaultFileKind, String), &Vec<u8>)| VaultFile {
                name: key.1.clone(),
                bytes: bytes.len() as u64,
            };
            Ok(of_kind.map(file).collect())
        })
    }

    fn read(&self, kind: VaultFileKind, name: &str, bytes_max: u64) -> LocalFuture<IoResult<Vec<u8>>> {
        let key = (kind, name.to_owned());
        self.call(false, move |content| {
            let bytes = content.files.get(&key).ok_or_else(|| missing(&key))?;
            let is_short = bytes.len() as u64 <= bytes_max;
            let long = || IoError::new(IoErrorKind::Damaged, format!("{} is too long", key.1));
            is_short.then(|| bytes.clone()).ok_or_else(long)
        })
    }

    fn read_range(
        &self,
        kind: VaultFileKind,
        name: &str,
        (at, length): (u64, usize),
    ) -> LocalFuture<IoResult<Vec<u8>>> {
        let key = (kind, name.to_owned());
        self.call(false, move |content| {
            let bytes = content.files.get(&key).ok_or_else(|| missing(&key))?;
            let range = at as usize..at as usize + length;
            let short =
                || IoError::new(IoErrorKind::OutOfRange, format!("{} ends before {}", key.1, range.end));
            bytes.get(range.clone()).map(<[u8]>::to_vec).ok_or_else(short)
        })
    }

    fn write(&self, kind: VaultFileKind, name: &str, bytes: Vec<u8>) -> LocalFuture<IoResult<()>> {
        let key = (kind, name.to_owned());
        self.call(true, move |content| {
            let length = bytes.len() as u64;
            if let Some(left) = content.faults.bytes_left {
                let rest = left.checked_sub(length);
                let full =
                    || IoError::new(IoErrorKind::NoSpace, format!("writing {}: no room", key.0.path(&key.1)));
                content.faults.bytes_left = Some(rest.ok_or_else(full)?);
            }
            content.writes.push((kind, length));
            content.files.insert(key, bytes);
            Ok(())
        })
    }

    fn delete(&self, kind: VaultFileKind, name: &str) -> LocalFuture<IoResult<()>> {
        let key = (kind, name.to_owned());
        self.call(true, move |content| content.files.remove(&key).map(drop).ok_or_else(|| missing(&key)))
    }
}
